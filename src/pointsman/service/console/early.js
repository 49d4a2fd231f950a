// Before the first paint: the colours chosen last, so that the page does not flash.
try {
  const theme = localStorage.getItem("pointsman.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // storage is not available: use the system's colours
}
