// Tidy layout of a tree from left to right: no two nodes overlap, and equal subtrees are drawn alike.

const SIBLINGS = 1;
const COUSINS = 1.35;

/**
 * Returns the vertical position of each visible node, in rows; the root is at 0. It takes linear time, without recursion
 * (C. Buchheim, M. Jünger, S. Leipert: "Improving Walker's Algorithm to Run in Linear Time", GD 2002).
 * @param {import("./tree-model.js").TreeModel} model
 * @returns {Float64Array} By id; undefined values for nodes that are not visible.
 */
export function layOut(model) {
  const { rows, parent, children, count } = model;
  const preliminary = new Float64Array(count);
  const modifier = new Float64Array(count);
  const change = new Float64Array(count);
  const shift = new Float64Array(count);
  const thread = new Int32Array(count).fill(-1);
  const ancestor = Int32Array.from({ length: count }, (_, id) => id);
  const defaultAncestor = new Int32Array(count).fill(-1);
  const place = new Int32Array(count);

  const open = (id) => (model.isOpen(id) ? children[id] : null);
  const first = (id) => open(id)?.[0] ?? thread[id];
  const last = (id) => open(id)?.at(-1) ?? thread[id];
  const distance = (one, other) => (parent[one] === parent[other] ? SIBLINGS : COUSINS);

  function apportion(id, left, fallback) {
    let innerRight = id;
    let outerRight = id;
    let innerLeft = left;
    let outerLeft = children[parent[id]][0];
    let shiftInnerRight = modifier[innerRight];
    let shiftOuterRight = modifier[outerRight];
    let shiftInnerLeft = modifier[innerLeft];
    let shiftOuterLeft = modifier[outerLeft];
    innerLeft = last(innerLeft);
    innerRight = first(innerRight);
    while (innerLeft >= 0 && innerRight >= 0) {
      outerLeft = first(outerLeft);
      outerRight = last(outerRight);
      ancestor[outerRight] = id;
      const gap = distance(innerLeft, innerRight);
      const move = preliminary[innerLeft] + shiftInnerLeft - preliminary[innerRight] - shiftInnerRight + gap;
      if (move > 0) {
        const from = parent[ancestor[innerLeft]] === parent[id] ? ancestor[innerLeft] : fallback;
        const part = move / (place[id] - place[from]);
        change[id] -= part;
        shift[id] += move;
        change[from] += part;
        preliminary[id] += move;
        modifier[id] += move;
        shiftInnerRight += move;
        shiftOuterRight += move;
      }
      shiftInnerLeft += modifier[innerLeft];
      shiftInnerRight += modifier[innerRight];
      shiftOuterLeft += modifier[outerLeft];
      shiftOuterRight += modifier[outerRight];
      innerLeft = last(innerLeft);
      innerRight = first(innerRight);
    }
    if (innerLeft >= 0 && last(outerRight) < 0) {
      thread[outerRight] = innerLeft;
      modifier[outerRight] += shiftInnerLeft - shiftOuterRight;
    }
    if (innerRight >= 0 && first(outerLeft) < 0) {
      thread[outerLeft] = innerRight;
      modifier[outerLeft] += shiftInnerRight - shiftOuterLeft;
      return id;
    }
    return fallback;
  }

  for (const id of rows) open(id)?.forEach((child, at) => (place[child] = at));
  for (const id of postOrder(model)) {
    const inner = open(id);
    const left = place[id] ? children[parent[id]][place[id] - 1] : -1;
    if (inner) {
      let moved = 0;
      let growing = 0;
      for (let at = inner.length - 1; at >= 0; at--) {
        const child = inner[at];
        preliminary[child] += moved;
        modifier[child] += moved;
        growing += change[child];
        moved += shift[child] + growing;
      }
      const middle = (preliminary[inner[0]] + preliminary[inner.at(-1)]) / 2;
      preliminary[id] = left >= 0 ? preliminary[left] + SIBLINGS : middle;
      modifier[id] = left >= 0 ? preliminary[id] - middle : 0;
    } else if (left >= 0) {
      preliminary[id] = preliminary[left] + SIBLINGS;
    }
    if (parent[id] >= 0) {
      const above = parent[id];
      if (defaultAncestor[above] < 0) defaultAncestor[above] = children[above][0];
      if (left >= 0) defaultAncestor[above] = apportion(id, left, defaultAncestor[above]);
    }
  }

  const y = new Float64Array(count).fill(NaN);
  const origin = preliminary[0];
  for (const id of rows) {
    const inherited = id ? modifier[parent[id]] : 0;
    y[id] = preliminary[id] + inherited - origin;
    modifier[id] += inherited;
  }
  return y;
}

/** Yields the visible nodes, children before their parents, and siblings in order. */
function* postOrder(model) {
  const stack = [0];
  const entered = new Uint8Array(model.count);
  while (stack.length) {
    const id = stack.at(-1);
    if (!entered[id] && model.isOpen(id)) {
      entered[id] = 1;
      const inner = model.children[id];
      for (let at = inner.length - 1; at >= 0; at--) stack.push(inner[at]);
    } else {
      yield stack.pop();
    }
  }
}
