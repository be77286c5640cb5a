// Live counts, loading more, opening details, keys, judging. No other script, and none from elsewhere.
const trusted = window.trustedTypes?.createPolicy("page", { createHTML: (s) => s }) ?? { createHTML: (s) => s };
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

const GONE = "lightning-ingest does not answer";
const LOCKED = "the page is locked, reload it";
const ask = (address, options) => fetch(address, options).catch(() => ({ ok: false, status: GONE }));
const fetched = async (address) => {
  const answer = await ask(address);
  const made = document.createElement("template");
  if (answer.ok) made.innerHTML = trusted.createHTML(await answer.text()); // scripts in a template never run
  else made.content.append(Object.assign(document.createElement("p"), { className: "alarm", textContent: `Not loaded: ${answer.status}. Reload the page.` }));
  return made.content;
};

// Live: the server sends counts; the reader decides when a list moves. One stream a visible page.
const live = $("[data-live]");
let events;
const follow = () => {
  events?.close();
  if (document.hidden || !live) return;
  events = new EventSource(live.dataset.live);
  events.onerror = () => { live.textContent = "not connected"; }; // the browser tries again
  events.onmessage = ({ data }) => {
    const { rate, spans, rollouts } = JSON.parse(data);
    live.textContent = `${spans.toLocaleString("en")} spans · ${rate ? `${Math.round(rate)} a second` : "idle"}`;
    const news = $("#news");
    const more = news ? rollouts - news.dataset.rollouts : 0;
    if (more > 0) Object.assign(news, { hidden: false, textContent: `${more} new, show` });
  };
};
addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => events?.close());
addEventListener("pageshow", follow);

// More: a link at the end of a list is replaced by what it leads to, before it is seen.
const more = new IntersectionObserver(async (seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    more.unobserve(target);
    const made = await fetched(`${target.href}&fragment=1`);
    (target.closest("[data-place]") ?? target).replaceWith(made);
    watch();
  }
}, { rootMargin: "800px" });
const watch = () => $$("a[data-more]").forEach((link) => more.observe(link));
watch();

// Details are fetched when they are opened.
addEventListener("toggle", async ({ target }) => {
  const link = target.open && $("a[data-details]", target);
  if (link) link.replaceWith(await fetched(`${link.href}&fragment=1`));
}, true);

// A judgement is feedback with an id of its own: judged again, it replaces.
const judge = async (value, step) => {
  const result = $("#judged");
  const item = { ...JSON.parse(result.dataset.judge), value };
  if (step) Object.assign(item, { id: `${item.id}:${step.dataset.step}`, trace_id: step.dataset.trace, span_id: step.dataset.span });
  const answer = await ask("/ui/feedback", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(item) });
  const reply = answer.ok && (await answer.json());
  result.classList.remove("away");
  result.textContent = reply?.stored ? `Judged ${step ? `step ${step.dataset.step}` : "the rollout"}: ${value}` : `Not judged: ${reply?.rejected?.[0].reason ?? (answer.status === 401 ? LOCKED : answer.status)}`;
};

addEventListener("click", ({ target }) => {
  if (target.matches(".judge button")) judge(Number(target.value), target.closest("[data-step]"));
  if (target.dataset.dialog) $(`#${target.dataset.dialog}`).showModal();
});

const focus = (element) => { element?.focus(); element?.scrollIntoView({ block: "nearest" }); };
const move = (by, wanted = () => true) => {
  const rows = $$("[data-row]");
  const here = rows.indexOf(document.activeElement.closest("[data-row]"));
  const next = by > 0 ? rows.slice(here + 1).find(wanted) : rows.slice(0, Math.max(here, 0)).findLast(wanted);
  if (next) focus(next);
  return next;
};
const follows = (selector) => $(selector)?.click();
const keys = {
  j: () => move(1), k: () => move(-1),
  ".": () => move(1, (row) => row.matches("[data-error]")) ?? follows("[data-next-error]"),
  u: () => follows("[data-up]"), n: () => follows("[data-next]"), p: () => follows("[data-previous]"),
  g: () => follows("[data-largest]"),
  "/": () => focus($("input[type=search], textarea")),
  "?": () => $("#keys").showModal(),
};
addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (target.matches("textarea") && key === "Enter" && (event.ctrlKey || event.metaKey)) target.form.submit();
  if (target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key === "Enter" && target.matches("[data-row]:not(a)")) return follows(`#${target.id} [data-open]`);
  if (/^[1-5]$/.test(key) && $("[data-judge]")) judge((key - 1) / 4, document.activeElement.closest("[data-step]"));
  else if (Object.hasOwn(keys, key)) { event.preventDefault(); keys[key](); }
});
