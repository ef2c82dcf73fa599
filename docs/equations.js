// Draws what pymdownx.arithmatex left as \( … \) and \[ … \].
document.addEventListener("DOMContentLoaded", () => {
  for (const host of document.querySelectorAll(".arithmatex")) {
    const display = host.textContent.startsWith("\\[");
    katex.render(host.textContent.slice(2, -2), host, { displayMode: display, strict: "ignore" });
  }
});
