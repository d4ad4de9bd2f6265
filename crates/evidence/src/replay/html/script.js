'use strict';
(() => {
  // Everything a session says is put in place as text; no markup is ever made from it.
  const $ = id => document.getElementById(id);
  const data = { calls: {}, rows: {} };
  for (const [call, ...own] of JSON.parse($('data').textContent)) {
    if (call) (data.calls[call] ||= []).push(own); else data.rows[own[0]] = own[1];
  }
  const items = [...document.querySelectorAll('.row,.call')];
  const search = $('search'), count = $('count'), none = $('none');
  const kinds = [...document.querySelectorAll('[data-kind]')];
  const failed = $('failed');
  let current = -1, found = [], place = -1, hay = null;

  const el = (tag, cls, text) => {
    const made = document.createElement(tag);
    if (cls) made.className = cls;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const block = ([kind, title, text, artifact]) => {
    const box = el('div', 'bl ' + kind);
    if (kind === 'facts') {
      const list = el('dl');
      for (const line of text.split('\n')) {
        const at = line.indexOf(': ');
        list.append(el('dt', '', line.slice(0, at)), el('dd', '', line.slice(at + 2)));
      }
      box.append(list);
      return box;
    }
    box.append(el('p', '', artifact ? title + ' · ' + artifact : title));
    const pre = el('pre');
    pre.tabIndex = 0;
    if (kind === 'diff') {
      for (const line of text.replace(/\n$/, '').split('\n')) {
        const c = line[0];
        const cls = /^(\+\+\+|---)/.test(line) ? 'f' : c === '+' ? 'a' : c === '-' ? 'd' : c === '@' ? 'h' : '';
        pre.append(el('span', cls, line));
      }
    } else pre.textContent = text;
    box.append(pre);
    return box;
  };

  const span = ms => ms === null ? '' : '+' + (ms < 60000 ? (ms / 1000).toFixed(2) + ' s' : Math.floor(ms / 60000) + ' min ' + Math.floor(ms / 1000 % 60) + ' s');

  const build = item => {
    if (item.built) return;
    item.built = true;
    const call = item.dataset.call;
    if (call === undefined) {
      const more = item.querySelector('.more'), blocks = data.rows[item.id.slice(1)];
      if (more && blocks) for (const each of blocks) more.append(block(each));
      return;
    }
    const body = el('div', 'b');
    for (const [seq, label, tone, level, type, says, ms, blocks] of data.calls[call]) {
      const row = el('div', 'ev ' + tone + ' ' + level);
      const old = $('e' + seq);
      if (old && old.tagName === 'I') { old.remove(); row.id = 'e' + seq; }
      const number = el('a', 'n', seq);
      number.href = '#e' + seq;
      number.title = type + ' ' + span(ms);
      row.append(number, el('span', 'l', label), el('div', 's', says));
      if (blocks.length) {
        const extra = el('div', 'x');
        let into = extra;
        if (level === 'record') {
          into = el('details', 'fold');
          into.append(el('summary', '', 'facts'));
          extra.append(into);
        }
        for (const each of blocks) into.append(block(each));
        row.append(extra);
      }
      body.append(row);
    }
    item.querySelector('details').append(body);
  };

  const details = item => item.querySelector('details');
  const open = (item, on) => {
    const cell = details(item);
    if (!cell) return;
    if (on) build(item);
    cell.open = on;
  };
  // What opens is built before it is seen, also when a key opens it.
  document.addEventListener('click', event => {
    const item = event.target.closest && event.target.closest('.row,.call');
    if (item && event.target.closest('summary')) build(item);
  }, true);
  // The event of a details element does not bubble, so it is caught on its way down.
  document.addEventListener('toggle', event => {
    const item = event.target.closest && event.target.closest('.row,.call');
    if (!item || event.target.className === 'fold') return;
    if (event.target.open) build(item);
    item.toggleAttribute('data-open', event.target.open);
  }, true);

  const texts = () => {
    if (hay) return hay;
    hay = items.map(item => {
      const own = item.dataset.call === undefined ? data.rows[item.id.slice(1)] : data.calls[item.dataset.call];
      const head = [...item.querySelectorAll('.l,.s,.chip')].map(part => part.textContent).join(' ');
      return (head + ' ' + (own ? own.flat(3).join(' ') : '')).toLowerCase();
    });
    return hay;
  };

  const update = () => {
    const on = new Set(kinds.filter(k => k.getAttribute('aria-pressed') === 'true').map(k => k.dataset.kind));
    const onlyFailed = failed.getAttribute('aria-pressed') === 'true';
    const words = search.value.trim().toLowerCase();
    const all = words ? texts() : null;
    found = [];
    let shown = 0;
    items.forEach((item, at) => {
      const kind = item.dataset.k.split(' ').some(k => on.has(k));
      const bad = !onlyFailed || item.classList.contains('bad');
      const hit = !words || all[at].includes(words);
      const visible = hit && (words ? true : kind) && bad;
      item.classList.toggle('off', !visible);
      if (visible) { shown++; if (words) found.push(at); }
    });
    for (const turn of document.querySelectorAll('.turn')) turn.classList.toggle('off', !turn.querySelector('.row:not(.off),.call:not(.off)'));
    none.hidden = shown > 0;
    count.textContent = words ? found.length + (found.length === 1 ? ' match' : ' matches') : '';
    place = -1;
  };

  const visible = at => at >= 0 && at < items.length && !items[at].classList.contains('off');
  const go = (at, block = 'center') => {
    if (!visible(at)) return;
    for (const old of document.querySelectorAll('.cur')) old.classList.remove('cur');
    current = at;
    const item = items[at];
    item.classList.add('cur');
    const focus = item.querySelector('summary') || item.querySelector('.n');
    focus.focus({ preventScroll: true });
    item.scrollIntoView({ block });
  };
  const step = (by, test = () => true) => {
    let at = current < 0 && by < 0 ? items.length : current;
    do at += by; while (at >= 0 && at < items.length && !(visible(at) && test(items[at])));
    go(at);
  };
  const isBad = item => item.classList.contains('bad');
  const next = by => {
    if (!found.length) return;
    place = (place + by + found.length) % found.length;
    open(items[found[place]], true);
    go(found[place]);
    search.focus({ preventScroll: true });
  };

  const follow = () => {
    const match = /^#e(\d+)$/.exec(location.hash);
    const target = match && $('e' + match[1]);
    if (!target) return;
    const item = target.closest('.row,.call');
    if (item) {
      if (item.classList.contains('off')) {
        search.value = '';
        failed.setAttribute('aria-pressed', 'false');
        const own = item.dataset.k.split(' ');
        for (const kind of kinds) if (own.includes(kind.dataset.kind)) kind.setAttribute('aria-pressed', 'true');
        update();
      }
      if (item.dataset.call !== undefined) open(item, true);
      for (const old of document.querySelectorAll('.cur')) old.classList.remove('cur');
      current = items.indexOf(item);
    }
    const now = $('e' + match[1]);
    now.scrollIntoView({ block: 'center' });
    // The place is in the address already; saying it again makes the browser mark the new element.
    if (now !== target) { history.replaceState(null, '', '#'); location.replace('#e' + match[1]); }
  };

  const toggle = button => {
    button.setAttribute('aria-pressed', button.getAttribute('aria-pressed') !== 'true');
    update();
  };
  for (const kind of kinds) kind.addEventListener('click', () => toggle(kind));
  failed.addEventListener('click', () => toggle(failed));
  let wait;
  search.addEventListener('input', () => { clearTimeout(wait); wait = setTimeout(update, 90); });
  search.addEventListener('keydown', event => {
    if (event.key === 'Enter') { clearTimeout(wait); if (place < 0) update(); next(event.shiftKey ? -1 : 1); event.preventDefault(); }
    if (event.key === 'Escape') { search.value = ''; update(); search.blur(); }
    event.stopPropagation();
  });
  const openAll = on => {
    for (const item of items) if (item.dataset.call !== undefined && !item.classList.contains('off')) open(item, on);
    $('open').textContent = on ? 'Close all' : 'Open all';
  };
  $('open').addEventListener('click', () => openAll($('open').textContent === 'Open all'));
  const theme = () => {
    const root = document.documentElement;
    const dark = root.classList.contains('dark') || (!root.classList.contains('light') && matchMedia('(prefers-color-scheme:dark)').matches);
    root.className = dark ? 'light' : 'dark';
  };
  $('theme').addEventListener('click', theme);
  $('keys').addEventListener('click', () => $('help').showModal());
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
    const done = () => event.preventDefault();
    switch (event.key) {
      case '/': search.focus(); search.select(); return done();
      case 'j': step(1); return done();
      case 'k': step(-1); return done();
      case 'n': step(1, isBad); return done();
      case 'p': step(-1, isBad); return done();
      case 'g': current = -1; step(1); return done();
      case 'G': current = items.length; step(-1); return done();
      case 'e': openAll(true); return done();
      case 'c': openAll(false); return done();
      case 't': theme(); return done();
      case '?': $('help').showModal(); return done();
      case 'Escape': search.value = ''; update(); return;
      case 'Enter': if (current >= 0 && document.activeElement.tagName !== 'SUMMARY' && document.activeElement.tagName !== 'BUTTON' && document.activeElement.tagName !== 'A') { const cell = details(items[current]); if (cell) open(items[current], !cell.open); } return;
    }
    if (/^[1-9]$/.test(event.key) && kinds[event.key - 1]) toggle(kinds[event.key - 1]);
  });
  let printed = [];
  addEventListener('beforeprint', () => {
    printed = items.filter(item => item.dataset.call !== undefined && !item.classList.contains('off') && !details(item).open);
    if (printed.length > 1000) printed = [];
    for (const item of printed) open(item, true);
  });
  addEventListener('afterprint', () => { for (const item of printed) open(item, false); printed = []; });
  addEventListener('hashchange', follow);
  update();
  follow();
})();
