// Counts the words of a file: a handler in Node.js, with progress, checkpoints and a stop that it heeds.
//
// Its job comes as one line of JSON on stdin; each line on stdout is a word to the node. console.error goes to the log.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

const CHECKPOINT_EVERY = 16 * 1024 * 1024; // bytes

const say = (words) => process.stdout.write(JSON.stringify(words) + "\n");
let stopped = false;

createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if ("stop" in told) stopped = true;
  else count(told).catch((error) => say({ error: String(error), retry: error.code !== "ENOENT" }));
});

async function count(job) {
  const { path, size } = job.files.text;
  const state = job.checkpoint ?? { bytes: 0, words: 0, letters: 0 };
  let kept = state.bytes;
  for await (const piece of createReadStream(path, { start: state.bytes })) {
    for (const byte of piece) {
      if (byte > 32) state.letters += 1;
      else state.letters = endWord(state, job.args.least);
    }
    state.bytes += piece.length;
    say({ progress: state.bytes / size });
    if (stopped || state.bytes - kept >= CHECKPOINT_EVERY) {
      say({ checkpoint: state });
      kept = state.bytes;
    }
    if (stopped) process.exit();
  }
  endWord(state, job.args.least);
  say({ result: { words: state.words, bytes: state.bytes } });
}

function endWord(state, least) {
  if (state.letters > 0 && state.letters >= least) state.words += 1;
  return 0;
}
