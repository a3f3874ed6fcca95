'use strict';
(() => {
  const form = document.getElementById('filters');
  const said = document.getElementById('said');
  const open = document.getElementById('open');
  const fields = [...form.elements].filter((field) => field.name);
  const items = [...document.querySelectorAll('.item')];
  const groups = [...document.querySelectorAll('.group')].reverse();

  // The address: a query, or, where a page may not change its query, a fragment that begins with ?.
  const asked = () => new URLSearchParams(
    location.hash.startsWith('#?') ? location.hash.slice(1) : location.search);

  const read = () => {
    const query = asked();
    for (const field of fields) {
      const text = query.get(field.name) ?? '';
      if (field.type === 'checkbox') field.checked = text !== '0';
      else field.value = [...field.options].some((o) => o.value === text) ? text : '';
    }
  };

  const write = () => {
    const query = new URLSearchParams();
    for (const field of fields) {
      if (field.type === 'checkbox') { if (!field.checked) query.set(field.name, '0'); }
      else if (field.value) query.set(field.name, field.value);
    }
    const text = query.toString();
    const fragment = location.hash.startsWith('#?') ? '' : location.hash;
    try {
      history.pushState(null, '', location.pathname + (text ? '?' + text : '') + fragment);
    } catch {
      location.hash = text ? '?' + text : '';
    }
  };

  const shows = (item, wanted) => wanted.every(([name, value]) => {
    const has = item.getAttribute('data-' + name);
    if (name === 'aa') return has === null;
    return has === null || has.split('\n').includes(value);
  });

  const apply = () => {
    const wanted = fields
      .filter((field) => field.type === 'checkbox' ? !field.checked : field.value)
      .map((field) => [field.name, field.value]);
    let rows = 0;
    let shown = 0;
    for (const item of items) {
      const on = shows(item, wanted);
      item.classList.toggle('off', !on);
      if (item.matches('.counted')) { rows += 1; shown += on ? 1 : 0; }
    }
    for (const group of groups) {
      const own = [...group.querySelectorAll('.item')];
      group.classList.toggle('off', own.length > 0 && own.every((item) => item.matches('.off')));
    }
    said.textContent = wanted.length === 0
      ? rows + ' comparisons. A selection is kept in the page\u2019s address, so that you can bookmark or share it.'
      : shown + ' of ' + rows + ' comparisons shown. This selection is in the page\u2019s address.';
  };

  form.hidden = false;
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', () => { write(); apply(); });
  form.addEventListener('reset', () => setTimeout(() => { write(); apply(); }));
  addEventListener('popstate', () => { read(); apply(); });
  for (const link of document.querySelectorAll('a[data-filter]')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();
      const [name, value] = link.dataset.filter.split('=');
      for (const field of fields) if (field.name === name) field.value = value;
      write();
      apply();
      const place = document.querySelector(new URL(link.href).hash);
      if (place) { place.tabIndex = -1; place.focus(); }
    });
  }

  const details = [...document.querySelectorAll('details')];
  const drawn = details.filter((one) => one.matches('.case'));
  open.addEventListener('click', () => {
    const on = open.getAttribute('aria-pressed') !== 'true';
    open.setAttribute('aria-pressed', String(on));
    open.textContent = on ? 'Close every chart' : 'Open every chart';
    for (const one of drawn) one.open = on;
  });
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = details.filter((one) => !one.open && !one.closest('td'));
    for (const one of closed) one.open = true;
  });
  addEventListener('afterprint', () => { for (const one of closed) one.open = false; });

  // A heading that sorts becomes a button.
  const key = (row, at) => {
    const cell = row.cells[at];
    const number = cell.dataset.v;
    const text = (cell.querySelector('summary') ?? cell).textContent.trim();
    return number === undefined ? text : Number(number);
  };
  for (const table of document.querySelectorAll('table.sorts')) {
    [...table.tHead.rows[0].cells].forEach((cell, at) => {
      if (cell.matches('.wide')) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener('click', () => {
        const up = cell.getAttribute('aria-sort') !== 'ascending';
        for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
        cell.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        for (const body of table.tBodies) {
          const rows = [...body.rows];
          rows.sort((a, b) => {
            const [x, y] = [key(a, at), key(b, at)];
            const order = typeof x === 'number' && typeof y === 'number'
              ? x - y : String(x).localeCompare(String(y));
            return up ? order : -order;
          });
          body.append(...rows);
        }
      });
    });
  }

  read();
  apply();
})();
