// The calculator of choose/ttl: the page's formula, with the reader's own numbers.
(function (root) {
  "use strict";

  const TTLS = [0.5, 1, 3, 5, 10, 15, 20, 30, 60, 90, 120, 180, 300, 600, 1800, 3600];

  // Renewal begins after a third of the ttl, and a loss is told a moment before the ttl has run out.
  // A request may still wait for the old server for a second while the new one is there.
  const bearable = (ttl) => ttl / 1.6 - 1;

  function leastTtl(silence) {
    return TTLS.find((ttl) => bearable(ttl) >= silence);
  }

  function advice({ failover, pause, crash, leases }) {
    const values = [failover, pause, crash, leases];
    if (values.some((value) => !(value >= 0))) {
      return ["Enter numbers, 0 or larger."];
    }
    const ttl = leastTtl(Math.max(failover, pause));
    if (ttl === undefined) {
      return ["No ttl up to an hour survives that. Shorten the failover or the pause first."];
    }
    const rate = (3 * leases) / ttl;
    const lines = [
      `Set the ttl to **${ttl} s**.`,
      `A lease renews itself every ${trimmed(ttl / 3)} s. The store may be silent for ${trimmed(bearable(ttl))} s.`,
      `${leases === 1 ? "One lease costs" : `${leases} leases cost`} the store ${trimmed(rate)} renewals per second.`,
    ];
    if (ttl > crash) {
      lines.push(
        `After a crash the lock stays held for up to ${ttl} s, which is longer than the ${crash} s that you accept. ` +
          "Shorten the failover or the pause, or accept it.",
      );
    } else {
      lines.push(`After a crash the next holder waits for up to ${ttl} s.`);
    }
    if (ttl < 1) {
      lines.push("Below a second, a busy machine loses leases: 1 s is safer.");
    }
    if (ttl > 60) {
      lines.push(`A quorum, and a store with \`guard_data_loss\`, need \`?max_ttl=${ttl}s\` in the URL.`);
    }
    return lines;
  }

  const trimmed = (number) => (number < 0.1 ? "less than 0.1" : String(Math.round(number * 10) / 10));

  const FIELDS = [
    ["failover", "Longest failover of the store, in seconds", 6],
    ["pause", "Longest pause of your process, in seconds", 1],
    ["crash", "After a crash, the next holder may wait, in seconds", 30],
    ["leases", "Leases held at the same time", 1],
  ];

  function element(name, properties, children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...(children || []));
    return made;
  }

  // **strong** and `code`, and nothing else.
  function paragraph(line) {
    return element(
      "p",
      {},
      line.split(/(\*\*.*?\*\*|`.*?`)/).map((part) => {
        if (part.startsWith("**")) return element("strong", { textContent: part.slice(2, -2) });
        if (part.startsWith("`")) return element("code", { textContent: part.slice(1, -1) });
        return part;
      }),
    );
  }

  function mount(place) {
    const inputs = {};
    const answer = element("output");
    const rows = FIELDS.map(([name, text, value]) => {
      inputs[name] = element("input", { type: "number", min: "0", step: "any", value: String(value) });
      return element("label", {}, [element("span", { textContent: text }), inputs[name]]);
    });
    const show = () => {
      const values = {};
      for (const [name] of FIELDS) {
        values[name] = inputs[name].value === "" ? NaN : Number(inputs[name].value);
      }
      answer.replaceChildren(...advice(values).map(paragraph));
    };
    const form = element("fieldset", {}, [element("legend", { textContent: "Calculate" }), ...rows, answer]);
    form.addEventListener("input", show);
    show();
    place.replaceChildren(form);
  }

  root.leaseholdTtl = { leastTtl, advice };
  const place = document.getElementById("ttl-calculator");
  if (place) mount(place);
})(globalThis);
