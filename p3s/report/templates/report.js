"use strict";
// Without this script the page is all there, one part below the other. It makes tabs of the parts,
// and lets the call paths be searched, sorted and folded and the flame graph be walked.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, attributes, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const step = (list, at, key) => ({
    ArrowRight: list[(at + 1) % list.length], ArrowLeft: list.at(at - 1),
    Home: list[0], End: list.at(-1),
  })[key];

  // ---- tabs
  const panels = all("main > .tab"), list = document.querySelector("nav.tabs");
  const links = list ? all("a", list) : [];
  const show = (panel, focus) => {
    panels.forEach((each, k) => {
      const chosen = each === panel;
      each.hidden = !chosen;
      links[k].setAttribute("aria-selected", chosen);
      links[k].tabIndex = chosen ? 0 : -1;
      if (chosen && focus) links[k].focus();
    });
  };
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const panel = target && target.closest(".tab");
    show(panel || panels[0], false);
    if (panel && target !== panel) target.scrollIntoView(); else scrollTo(0, 0);
  };
  if (panels.length > 1 && links.length === panels.length) {
    list.setAttribute("role", "tablist");
    panels.forEach((panel, k) => {
      links[k].id = `tab-${panel.id}`;
      links[k].setAttribute("role", "tab");
      links[k].setAttribute("aria-controls", panel.id);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", links[k].id);
      const go = (focus) => {
        history.replaceState(null, "", `#${panel.id}`);
        show(panel, focus);
        scrollTo(0, 0);
      };
      links[k].addEventListener("click", (event) => { event.preventDefault(); go(false); });
      links[k].addEventListener("keydown", (event) => {
        const other = step(links, k, event.key);
        if (event.key === " ") { event.preventDefault(); go(true); }
        if (!other) return;
        event.preventDefault();
        other.click();
        other.focus();
      });
    });
    addEventListener("hashchange", open);
    open();
  }

  // ---- call paths
  for (const table of all("table.paths")) {
    const body = table.tBodies[0];
    const top = { row: null, depth: -1, body: [], open: true };
    const stack = [top];
    const nodes = [...body.rows].map((row) => {
      const depth = Number(row.dataset.d);
      while (stack.at(-1).depth >= depth) stack.pop();
      const node = { row, depth, body: [], open: row.dataset.closed === undefined, up: stack.at(-1) };
      node.text = row.cells[0].textContent.toLowerCase();
      node.up.body.push(node);
      stack.push(node);
      return node;
    });
    const shown = (node) => node.up === top || (node.up.open && shown(node.up));
    let wanted = "";
    const heard = make("span", { role: "status", class: "soft" });
    const draw = () => {
      let hits = 0;
      const kept = new Set();
      for (const node of nodes) {
        node.hit = wanted !== "" && node.text.includes(wanted);
        if (node.hit) {
          hits += 1;
          for (let each = node; each !== top; each = each.up) kept.add(each);
        }
      }
      for (const node of nodes) {
        node.row.hidden = wanted ? !kept.has(node) : !shown(node);
        node.row.classList.toggle("hit", node.hit);
        if (node.button) node.button.setAttribute("aria-expanded", Boolean(wanted) || node.open);
      }
      heard.textContent = wanted ? `${hits} of ${nodes.length} rows` : "";
    };
    for (const node of nodes) {
      if (!node.body.length) continue;
      node.button = make("button", { type: "button", class: "fold", "aria-label": "fold" });
      node.button.addEventListener("click", () => { node.open = !node.open; draw(); });
      node.row.cells[0].prepend(node.button);
    }
    const tools = make("div", { class: "tools" });
    const field = make("input", { type: "search", placeholder: "Find a function, call or phase",
      "aria-label": "Find a function, call or phase" });
    field.addEventListener("input", () => { wanted = field.value.trim().toLowerCase(); draw(); });
    const every = (open) => () => { nodes.forEach((node) => { node.open = open || node.up === top; }); draw(); };
    const more = make("button", { type: "button" }, "Unfold all");
    const less = make("button", { type: "button" }, "Fold all");
    more.addEventListener("click", every(true));
    less.addEventListener("click", every(false));
    tools.append(field, more, less, heard);
    table.parentElement.before(tools);
    const heads = [...table.tHead.rows[0].cells];
    const order = nodes.slice();
    const sort = (column, down) => {
      const value = (node) => column === 0 ? order.indexOf(node) : -Number(node.row.cells[column].dataset.v || -1);
      const place = (node) => {
        node.body.sort((one, other) => (down ? 1 : -1) * (value(one) - value(other)));
        for (const each of node.body) { body.append(each.row); place(each); }
      };
      place(top);
      heads.forEach((head, k) => {
        if (k === column && k) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    };
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", class: "sort" }, head.textContent);
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", () => sort(column, column === 0 || head.getAttribute("aria-sort") !== "descending"));
    });
    draw();
  }

  // ---- flame graph
  for (const svg of all("svg.flame")) {
    const wide = svg.viewBox.baseVal.width;
    const frames = all(".ff", svg).map((group) => {
      const rect = group.querySelector("rect");
      return { group, rect, text: group.querySelector("text"), level: Number(group.getAttribute("aria-level")),
        x: rect.x.baseVal.value, w: rect.width.baseVal.value };
    });
    const said = make("p", { class: "soft told", role: "status" });
    const back = make("button", { type: "button", hidden: "" }, "Show all again");
    svg.parentElement.after(said, back);
    const zoom = (frame) => {
      back.hidden = frame === frames[0];
      for (const each of frames) {
        const scale = wide / frame.w;
        const left = Math.max((each.x - frame.x) * scale, 0);
        const right = Math.min((each.x + each.w - frame.x) * scale, wide);
        const around = each.level < frame.level && each.x <= frame.x && each.x + each.w >= frame.x + frame.w - 0.5;
        each.gone = right - left < 1 || (each.level < frame.level && !around);
        each.group.style.display = each.gone ? "none" : "";
        if (each.gone) continue;
        each.rect.setAttribute("x", left);
        each.rect.setAttribute("width", Math.max(right - left - 1, 0.5));
        each.text.setAttribute("x", left + 6);
        const room = Math.floor((right - left - 10) / 7.7), name = each.group.dataset.t;
        each.text.textContent = room >= name.length ? name : room >= 4 ? `…${name.slice(name.length - room + 1)}` : "";
      }
    };
    const focus = (frame) => {
      if (!frame) return;
      frames.forEach((each) => each.group.setAttribute("tabindex", each === frame ? 0 : -1));
      frame.group.focus();
    };
    const inside = (one, other) => one.x >= other.x - 0.5 && one.x + one.w <= other.x + other.w + 0.5;
    frames.forEach((frame) => {
      frame.group.addEventListener("focus", () => { said.textContent = frame.group.getAttribute("aria-label"); });
      frame.group.addEventListener("click", () => { focus(frame); zoom(frame); });
      frame.group.addEventListener("keydown", (event) => {
        const seen = frames.filter((each) => !each.gone);
        const row = seen.filter((each) => each.level === frame.level).sort((a, b) => a.x - b.x);
        const to = {
          ArrowUp: seen.findLast((each) => each.level === frame.level - 1 && inside(frame, each)),
          ArrowDown: seen.find((each) => each.level === frame.level + 1 && inside(each, frame)),
        }[event.key] || step(row, row.indexOf(frame), event.key);
        if (event.key === "Enter" || event.key === " ") zoom(frame);
        else if (event.key === "Escape") zoom(frames[0]);
        else if (!to) return;
        event.preventDefault();
        focus(to);
      });
    });
    back.addEventListener("click", () => { zoom(frames[0]); focus(frames[0]); });
  }
})();
