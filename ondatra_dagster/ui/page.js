// The UI's script, for convenience: every page works without it.
"use strict";

// Refresh a page whose content changes, and keep the focus where it is.
async function lookAgain() {
  const shown = document.getElementById("main");
  const held = document.querySelector("details[open]") || document.getSelection().toString();
  if (!document.hidden && !held) {
    try {
      const answer = await fetch(location.href);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (answer.ok && next) {
        const focused = document.activeElement && document.activeElement.getAttribute("href");
        shown.replaceWith(next);
        const again = focused && [...next.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused);
        if (again) again.focus({ preventScroll: true });
      }
    } catch {
      // the server has stopped: the shown page stays
    }
  }
  waitToLook();
}

function waitToLook() {
  const seconds = Number(document.getElementById("main").dataset.live);
  if (seconds) setTimeout(lookAgain, seconds * 1000);
}

// Focus the search field when the user presses "/".
document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  const isTyping = event.target.closest("input, select, textarea");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping || !search) return;
  event.preventDefault();
  search.focus();
  search.select();
});

waitToLook();
