/** The API's description, by which requests can be tried: Swagger UI over it, with the key that the console uses. */

import { get, key, useKey } from "./api.mjs";

const form = document.querySelector("form");
const alert = document.querySelector("[role=alert]");

/** Send the key of this tab, unless another was given under "Authorize"; nothing is sent to another site. */
function withKey(request) {
  const given = Object.keys(request.headers).some((name) => /^(authorization|x-api-key)$/i.test(name));
  if (key() && !given && new URL(request.url, location.href).origin === location.origin) {
    request.headers.Authorization = `Bearer ${key()}`;
  }
  return request;
}

async function show() {
  let spec;
  try {
    spec = await get("openapi.json");
  } catch (problem) {
    form.hidden = problem.status !== 401;
    alert.textContent = problem.status === 401 && !key() ? "" : `${problem.title} ${problem.detail}`;
    return;
  }
  form.hidden = true;
  alert.textContent = "";
  spec.servers = [{ url: new URL(".", location.href).pathname }];
  globalThis.SwaggerUIBundle({
    spec,
    dom_id: "#operations",
    deepLinking: true,
    docExpansion: "list",
    requestInterceptor: withKey,
    tryItOutEnabled: true,
    validatorUrl: null,
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(form.elements.namedItem("key").value.trim());
  show();
});
show();
