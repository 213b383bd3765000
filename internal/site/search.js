"use strict";
// Ranks pages by where the words stand: title, headings, text. Every word must be on the page.
(() => {
  const root = document.body.dataset.root, query = document.getElementById("query"), list = document.getElementById("found");
  const score = (page, words) => {
    let sum = 0, anchor = "";
    const title = page.t.toLowerCase();
    for (const word of words) {
      const head = page.h.find(([text]) => text.toLowerCase().includes(word));
      if (title.includes(word)) sum += title.split(/\s+/).includes(word) ? 30 : 20;
      else if (head) { sum += 8; anchor = anchor || head[1]; }
      else if (page.w.includes(word)) sum += 1;
      else return null;
    }
    return {page, sum, anchor};
  };
  query.addEventListener("input", () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? pages.map((page) => score(page, words)).filter(Boolean) : [];
    found.sort((a, b) => b.sum - a.sum || a.page.t.length - b.page.t.length);
    list.replaceChildren(...found.slice(0, 20).map(({page, anchor}) => {
      const item = document.createElement("li"), link = document.createElement("a"), where = document.createElement("small");
      link.href = root + page.p + (anchor ? "#" + anchor : "");
      link.textContent = page.t;
      where.textContent = " " + page.s;
      item.append(link, where);
      return item;
    }));
    if (words.length && !found.length) {
      const item = document.createElement("li");
      item.textContent = "No page has all of these words.";
      list.append(item);
    }
  });
  const asked = new URLSearchParams(location.search).get("q"); // a search can be linked to
  if (asked) {
    query.value = asked;
    query.dispatchEvent(new Event("input"));
  }
  query.addEventListener("keydown", (event) => {
    const first = list.querySelector("a");
    if (event.key === "Enter" && first) location.href = first.href;
  });
})();
