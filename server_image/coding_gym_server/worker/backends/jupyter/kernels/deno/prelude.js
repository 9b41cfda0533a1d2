// Runs in the Deno kernel before the first cell. The kernel publishes one message per console.log call, and reports the end of
// a cell before all its output is published: so output is sent in large chunks, and the server queries when all of it is sent.
(() => {
  const pieceLength = 65_536;
  const pieceMilliseconds = 50;
  const pauseMilliseconds = 2;
  const lastWordsMilliseconds = 100;
  const { Console } = Deno[Deno.internal];
  const { broadcast } = Deno.jupyter;
  const now = performance.now.bind(performance);
  let text = "";
  let name = "stdout";
  let flushed = now();
  let environment = {};

  const pause = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
  const flush = () => {
    flushed = now();
    if (text) {
      const piece = text;
      text = "";
      broadcast("stream", { name, text: piece });
    }
  };
  const print = (message, stream) => {
    if (stream !== name) {
      flush();
      name = stream;
    }
    if (!text) queueMicrotask(flush);
    text += message;
    if (text.length > pieceLength) {
      flush();
      // Another thread publishes the messages, and must not fall far behind: an interrupt would have to wait for it.
      pause(pauseMilliseconds);
    } else if (now() - flushed > pieceMilliseconds) {
      flush();
    }
  };
  globalThis.console = new Console((message, level) => print(message, level > 1 ? "stderr" : "stdout"));
  for (const [stream, file] of [["stdout", Deno.stdout], ["stderr", Deno.stderr]]) {
    const decoder = new TextDecoder();
    // The kernel discards direct writes to these streams.
    file.writeSync = (bytes) => {
      print(decoder.decode(bytes, { stream: true }), stream);
      return bytes.length;
    };
    file.write = (bytes) => Promise.resolve(file.writeSync(bytes));
  }
  addEventListener("unload", () => {
    flush();
    pause(lastWordsMilliseconds);
  });

  Object.defineProperty(globalThis, Symbol.for("coding_gym"), {
    value: Object.freeze({
      settle() {
        flush();
        broadcast("coding_gym_settled", {});
      },
      setEnvironment(variables) {
        environment = {};
        for (const [name, value] of Object.entries(variables)) {
          environment[name] = Deno.env.get(name);
          Deno.env.set(name, value);
        }
      },
      restoreEnvironment() {
        for (const [name, value] of Object.entries(environment)) {
          value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
        }
        environment = {};
      },
      // The kernel does not report why code fails to compile.
      async diagnose(code) {
        const { stripTypeScriptTypes } = await import("node:module");
        let message = "";
        try {
          stripTypeScriptTypes(code, { mode: "transform" });
        } catch (error) {
          message = error.message.replace(/^SyntaxError: /, "").replace(/\n\s*at file:.*$/, "");
        }
        broadcast("coding_gym_diagnosis", { message });
      },
    }),
  });
})()
