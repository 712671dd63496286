// Tables: each can be saved as CSV, and those that say so are sorted by a click on a title.
(function () {
"use strict";

function all(list) { return Array.prototype.slice.call(list); }
function text(cell) { return cell.textContent.replace(/\s+/g, " ").trim(); }

// A name from a model must not become a formula in a spreadsheet.
function field(value) {
  var safe = /^[=+\-@]/.test(value) && !/^-?[0-9.]/.test(value) ? "'" + value : value;
  return /[",\n]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
}
function cellsOf(row) {
  var parts = row.matches("li") ? row.querySelectorAll(":scope > code, :scope > span, :scope > small, :scope > details > summary") : row.cells;
  return all(parts).map(text);
}
function csv(head, rows) {
  var lines = rows.map(cellsOf);
  if (head.length) { lines.unshift(head); }
  return lines.map(function (line) { return line.map(field).join(","); }).join("\r\n") + "\r\n";
}
function save(name, content) {
  var link = document.createElement("a");
  link.href = "data:text/csv;charset=utf-8,%EF%BB%BF" + encodeURIComponent(content);
  link.download = name + ".csv";
  link.click();
}
function button(name, read) {
  var made = document.createElement("button");
  made.type = "button";
  made.className = "csv";
  made.textContent = "CSV";
  made.setAttribute("aria-label", "Save " + name + " as CSV");
  made.addEventListener("click", function () { save(name, read()); });
  return made;
}
function nameOf(element) {
  var title = element.dataset.name || document.title;
  return title.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase();
}

all(document.querySelectorAll("table[data-name]")).forEach(function (table) {
  table.before(button(nameOf(table), function () {
    var head = table.tHead ? all(table.tHead.rows[0].cells).map(text) : [];
    return csv(head, all(table.rows).filter(function (row) { return row.closest("tbody"); }));
  }));
});
all(document.querySelectorAll("div[data-name]")).forEach(function (list) {
  list.prepend(button(nameOf(list), function () {
    return csv(list.dataset.head.split("|"), all(list.querySelectorAll("li")));
  }));
});

// Numbers by their size, with none of them last; other cells by their letters.
function key(cell) {
  var value = cell.dataset.sort || text(cell);
  return /^-?[0-9]/.test(value) ? parseFloat(value) : value;
}
function compare(a, b) {
  if (typeof a === typeof b) { return typeof a === "number" ? a - b : a.localeCompare(b); }
  return typeof a === "number" ? -1 : 1;
}
all(document.querySelectorAll("table[data-sortable]")).forEach(function (table) {
  all(table.tHead.rows[0].cells).forEach(function (title, at) {
    var sorter = document.createElement("button");
    sorter.type = "button";
    sorter.className = "sorter";
    sorter.textContent = title.textContent;
    title.textContent = "";
    title.appendChild(sorter);
    sorter.addEventListener("click", function () {
      var down = title.getAttribute("aria-sort") === "ascending";
      all(table.tHead.rows[0].cells).forEach(function (one) { one.removeAttribute("aria-sort"); });
      title.setAttribute("aria-sort", down ? "descending" : "ascending");
      var body = table.tBodies[0], rows = all(body.rows);
      rows.sort(function (a, b) {
        var order = compare(key(a.cells[at]), key(b.cells[at]));
        return down ? -order : order;
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
  });
});
})();
