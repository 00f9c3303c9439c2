// A page of attention in a frame: as high as what it shows, and a click on a target word tells the number of the word.
const follow = frame => {
  const page = frame.contentDocument, main = page.querySelector("main");
  if (!main) return;
  new ResizeObserver(() => { frame.style.height = `${main.offsetHeight + 12}px`; }).observe(main);
  page.querySelectorAll(".target .word").forEach((word, index) =>
    word.addEventListener("click", () => trigger("select", {index})));
};
element.addEventListener("load", event => follow(event.target), true);
element.querySelectorAll("iframe").forEach(follow);
