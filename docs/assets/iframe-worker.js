// Search in pages that are opened from a folder. Browsers start no worker from a file, so there a hidden frame does the
// worker's work; the theme's search looks for `IFrameWorker` and then awaits `importScripts`.
if (location.protocol === "file:") {
  const workers = new Map();

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const number = workers.size;
      workers.set(number, this);
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        `<script>(${prepare})(${number})</` + `script><script src="${new URL(url, document.baseURI)}"></` + "script>";
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  // Runs in the frame, before the worker's script.
  const prepare = function (number) {
    self.postMessage = (data) => parent.IFrameWorker.deliver(number, data);
    self.importScripts = (...urls) =>
      urls.reduce(
        (before, url) =>
          before.then(
            () =>
              new Promise((resolve, reject) => {
                const script = document.createElement("script");
                script.src = url;
                script.onload = resolve;
                script.onerror = () => reject(new Error(`cannot load ${url}`));
                document.head.append(script);
              }),
          ),
        Promise.resolve(),
      );
  };

  IFrameWorker.deliver = (number, data) => workers.get(number).dispatchEvent(new MessageEvent("message", { data }));
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
