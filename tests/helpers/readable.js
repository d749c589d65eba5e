(() => {
  const numbers = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const ground = (e) => {
    if (!e) return numbers(getComputedStyle(document.body).backgroundColor).slice(0, 3);
    const own = numbers(getComputedStyle(e).backgroundColor);
    return (own[3] ?? 1) === 1 && own.length >= 3 ? own.slice(0, 3) : over(own, ground(e.parentElement));
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const e = node.parentElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (!node.data.trim() || !box.width || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    if (["TITLE", "STYLE", "SCRIPT", "OPTION"].includes(e.tagName.toUpperCase()) || e.closest(":disabled")) continue;
    const behind = ground(e), ink = over(numbers(e.closest("svg") ? style.fill : style.color), behind);
    const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${node.data.trim().slice(0, 40)}`);
  }
  return found;
})()