"use strict";
(() => {
  const $ = (query, from = document) => from.querySelector(query);
  const $$ = (query, from = document) => [...from.querySelectorAll(query)];
  const table = $("table.results");
  const rows = table ? $$("tbody tr[data-result-id]", table) : [];
  let current = -1;

  // Filters of a card work in the page and live in its address, so that a filtered view can be linked to.
  const form = $("form.filters:not([action])");
  const names = ["q", "source", "gap", "diverging", "multi", "check"];
  const texts = new Map();
  const plain = (row) => {
    if (!texts.has(row)) texts.set(row, $$(":scope > :not(.num)", row).map((cell) => cell.textContent.toLowerCase()).join(" "));
    return texts.get(row);
  };
  const read = () => Object.fromEntries(names.map((name) => {
    const field = form.elements[name];
    return [name, field.type === "checkbox" ? (field.checked ? "1" : "") : field.value.trim()];
  }));
  const apply = (push) => {
    const wanted = read();
    const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const keep = words.every((word) => plain(row).includes(word))
        && (!wanted.source || row.dataset.source === wanted.source)
        && ["gap", "diverging", "multi", "check"].every((name) => !wanted[name] || name in row.dataset);
      row.hidden = !keep;
      shown += keep;
    }
    const all = `${rows.length.toLocaleString("en")} result${rows.length === 1 ? "" : "s"}`;
    $(".count", form).value = shown === rows.length ? all : `${shown.toLocaleString("en")} of ${all}`;
    if (push) {
      const address = new URL(location);
      for (const name of names) wanted[name] ? address.searchParams.set(name, wanted[name]) : address.searchParams.delete(name);
      history.replaceState(null, "", address);
      for (const link of $$(".switch a")) {
        const other = new URL(address);
        other.searchParams.set("mode", link.id.slice(5));
        link.href = other;
      }
    }
  };
  const fill = () => {
    const given = new URL(location).searchParams;
    for (const name of names) {
      const field = form.elements[name];
      if (field.type === "checkbox") field.checked = given.get(name) === "1";
      else field.value = given.get(name) || "";
    }
    apply(false);
  };
  if (form) {
    form.addEventListener("input", () => apply(true));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => apply(true)));
    addEventListener("pageshow", fill);
    fill();
  }

  // Sorting by a column; the server's own order is by name, never by score.
  const sort = (head) => {
    const index = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.children[index];
      if (head.dataset.sort === "text") return cell.textContent.trim().toLowerCase();
      const value = parseFloat(cell.dataset.number ?? cell.textContent.replaceAll(",", ""));
      return Number.isNaN(value) ? -Infinity : value;
    };
    const body = $("tbody", head.closest("table"));
    const order = $$("tr", body).map((row) => [key(row), row]);
    order.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
    body.append(...order.map(([, row]) => row));
    if (table && body === $("tbody", table)) rows.splice(0, rows.length, ...$$("tr[data-result-id]", body));
  };
  for (const head of $$("th[data-sort]")) {
    const button = document.createElement("button");
    button.className = "sorter";
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head));
  }

  const visible = () => rows.filter((row) => !row.hidden);
  const move = (step) => {
    const list = visible();
    if (!list.length) return;
    current = Math.min(list.length - 1, Math.max(0, list.indexOf($("tr.current", table)) + step));
    for (const row of $$("tr.current")) row.classList.remove("current");
    list[current].classList.add("current");
    list[current].scrollIntoView({ block: "nearest" });
    $("a", list[current])?.focus({ preventScroll: true });
  };
  const help = $("#help");
  $("#keys")?.addEventListener("click", () => help.showModal());
  for (const link of $$("a.print")) link.addEventListener("click", (event) => { event.preventDefault(); print(); });

  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && typing) return typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      "/": () => $(".search input[type=search]").focus(),
      f: () => $("form.filters input[type=search]")?.focus(),
      m: () => $(".switch a:not([aria-current])").click(),
      j: () => move(1),
      k: () => move(-1),
      u: () => history.back(),
      "?": () => help.showModal(),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  // Details are opened for print, where nobody can click them.
  addEventListener("beforeprint", () => $$("details").forEach((part) => { part.open = true; }));
})();
