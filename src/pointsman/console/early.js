// Before anything is painted: the colours and the language chosen last, so that the page does not flash.
try {
  const theme = localStorage.getItem("pointsman.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // this browser keeps nothing: the system's colours are right
}
