// Light or dark before anything is drawn: as chosen on this page, else as the system has it. And the time zone of what
// is shown: the host's, in which the server writes all times, unless UTC or the browser's own is chosen.
"use strict";
(() => {
  const root = document.documentElement;
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      document.dispatchEvent(new Event("themechange"));
    });
    const zones = document.getElementById("zone");
    zones.hidden = false;
    zones.value = chosenZone();
    zones.addEventListener("change", () => {
      localStorage.setItem("zone", zones.value);
      showTimes(document);
      document.dispatchEvent(new Event("themechange"));
    });
    showTimes(document);
  });

  function chosenZone() {
    const found = localStorage.getItem("zone");
    return found === "UTC" || found === "browser" ? found : "host";
  }

  // The zone's name for Intl; undefined is the browser's own, as is one that this browser does not know.
  window.timeZone = () => {
    const name = { host: document.body.dataset.zone, UTC: "UTC", browser: undefined }[chosenZone()];
    try {
      new Intl.DateTimeFormat("en", { timeZone: name });
      return name;
    } catch {
      return undefined;
    }
  };

  window.showTimes = (part) => {
    const format = new Intl.DateTimeFormat("sv-SE", { timeZone: timeZone(), dateStyle: "short", timeStyle: "medium" });
    for (const one of part.querySelectorAll("time[data-us]")) {
      one.dataset.host ??= one.textContent; // as the server wrote it
      one.textContent = chosenZone() === "host" ? one.dataset.host : format.format(Number(one.dataset.us) / 1000);
    }
  };
})();
