// A button that plays each sound: the controls of a browser do not fit below a small picture.
for (const sound of document.querySelectorAll("audio")) {
  const button = Object.assign(document.createElement("button"), {type: "button", className: "play"});
  const show = () => {
    button.textContent = sound.paused ? "▶" : "■";
    button.setAttribute("aria-label", (sound.paused ? "Play " : "Stop ") + sound.getAttribute("aria-label"));
  };
  button.addEventListener("click", event => {
    event.stopPropagation();
    const begins = sound.paused;
    for (const other of document.querySelectorAll("audio")) other.pause();
    if (begins) {
      sound.currentTime = 0;
      sound.play();
    }
  });
  for (const change of ["play", "pause", "ended"]) sound.addEventListener(change, show);
  sound.removeAttribute("controls");
  sound.after(button);
  show();
}
