// Sections: none is longer than the window until it is opened, and the contents show where one is.
(function () {
"use strict";
var BAR = 80;  // pixels of the window that the bar at the top and a margin take

function all(list) { return Array.prototype.slice.call(list); }

function open(section) {
  section.classList.remove("clamped");
  var button = section.querySelector(":scope > .whole");
  if (button) { button.remove(); }
}
function clamp(section) {
  if (section.scrollHeight <= window.innerHeight - BAR || section.querySelector(".graph, .jobs")) { return; }
  section.classList.add("clamped");
  var button = document.createElement("button");
  button.type = "button";
  button.className = "whole";
  button.textContent = "Show the whole section";
  button.addEventListener("click", function () { open(section); });
  section.appendChild(button);
  section.addEventListener("toggle", function () { open(section); }, true);
  section.addEventListener("focusin", function (event) {
    if (!event.target.matches(".whole") && event.target.getBoundingClientRect().bottom > section.getBoundingClientRect().bottom - 40) { open(section); }
  });
}
all(document.querySelectorAll("section")).forEach(clamp);
document.addEventListener("unfold", function () { all(document.querySelectorAll(".clamped")).forEach(open); });

// An address leads into what is folded away.
function arrive() {
  var id = decodeURIComponent(location.hash.slice(1)), goal = id && document.getElementById(id);
  if (!goal) { return; }
  for (var at = goal; at; at = at.parentElement) {
    if (at.matches("details")) { at.open = true; }
    if (at.matches(".clamped") && at !== goal) { open(at); }
  }
  goal.scrollIntoView();
}
window.addEventListener("hashchange", arrive);
arrive();

var links = {};
all(document.querySelectorAll(".contents a")).forEach(function (one) { links[one.hash.slice(1)] = one; });
if ("IntersectionObserver" in window) {
  var watcher = new IntersectionObserver(function (seen) {
    seen.forEach(function (one) {
      if (!one.isIntersecting) { return; }
      all(document.querySelectorAll(".contents a")).forEach(function (link) { link.removeAttribute("aria-current"); });
      links[one.target.id].setAttribute("aria-current", "true");
    });
  }, { rootMargin: "-20% 0px -70% 0px" });
  Object.keys(links).forEach(function (id) {
    var goal = document.getElementById(id);
    if (goal) { watcher.observe(goal); }
  });
}
})();
