// Differences of two texts, line by line.

/** Product of the numbers of lines beyond which lines are compared by position only. */
const LARGEST = 4_000_000;

/**
 * Returns pairs of lines: equal ones, and different ones, of which one is null where a text has fewer lines.
 * @param {string} first
 * @param {string} second
 * @returns {{first: string | null, second: string | null}[]}
 */
export function diffLines(first, second) {
  const a = first === "" ? [] : first.replace(/\n$/, "").split("\n");
  const b = second === "" ? [] : second.replace(/\n$/, "").split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const equal = (lines) => lines.map((line) => ({ first: line, second: line }));
  return [
    ...equal(a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...equal(a.slice(a.length - end)),
  ];
}

/** Returns the pairs of the longest common subsequence, and the lines between them. */
function middle(a, b) {
  const pairs = [];
  if (a.length * b.length > LARGEST) return byPosition(a, b);
  // Numbers are compared at once, long lines that differ at their ends are not.
  const numbers = new Map();
  const numbered = (lines) => Uint32Array.from(lines, (line) => numbers.get(line) ?? numbers.set(line, numbers.size).size - 1);
  const [first, second] = [numbered(a), numbered(b)];
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] =
        first[i] === second[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  let i = 0;
  let j = 0;
  // Lines that one text has instead of lines of the other are beside them.
  let gapA = 0;
  let gapB = 0;
  const fillGap = () => pairs.push(...byPosition(a.slice(gapA, i), b.slice(gapB, j)));
  while (i < a.length && j < b.length) {
    if (first[i] === second[j]) {
      fillGap();
      pairs.push({ first: a[i++], second: b[j++] });
      gapA = i;
      gapB = j;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
  i = a.length;
  j = b.length;
  fillGap();
  return pairs;
}

function byPosition(a, b) {
  return Array.from({ length: Math.max(a.length, b.length) }, (_, at) => ({ first: a[at] ?? null, second: b[at] ?? null }));
}
