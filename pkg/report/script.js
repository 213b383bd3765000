"use strict";
// What needs no script stands in the page: this adds the search, a choice of owners and sides, and opens what is linked.
(() => {
  const rows = [...document.querySelectorAll("main tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const search = document.getElementById("search");
  const query = document.getElementById("query");
  const matches = document.getElementById("matches");
  const chosen = new Map(); // table -> [column, value]
  const show = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      const choice = chosen.get(row.closest("table"));
      const fits = words.every((word) => texts[i].includes(word)) &&
        (!choice || row.cells[choice[0]].textContent === choice[1]);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    if (words.length > 0) {
      for (const part of document.querySelectorAll("#components details")) {
        part.open = part.querySelector("tbody tr:not([hidden])") !== null;
      }
    }
    matches.textContent = words.length > 0 ? `${shown} of ${rows.length} rows` : "";
  };
  search.hidden = false;
  query.addEventListener("input", show);
  for (const table of document.querySelectorAll("table[data-filter]")) {
    const column = Number(table.dataset.filter);
    const values = [...new Set([...table.tBodies[0].rows].map((row) => row.cells[column].textContent))].sort();
    const label = document.createElement("label");
    const select = document.createElement("select");
    for (const value of ["all", ...values]) {
      select.append(new Option(value === "" ? "(none)" : value, value));
    }
    label.className = "choice";
    label.append(table.tHead.rows[0].cells[column].textContent + " ", select);
    select.addEventListener("change", () => {
      if (select.selectedIndex === 0) chosen.delete(table);
      else chosen.set(table, [column, select.value]);
      show();
    });
    table.before(label);
  }
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
