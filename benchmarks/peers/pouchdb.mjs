// How fast does PouchDB bring two databases of this machine together?
//
//     node pouchdb.mjs FOLDER DOCUMENTS EDITED
//
// FOLDER holds node_modules with pouchdb. Prints one JSON map: documents replicated in a second into an empty
// database, and the seconds in which two databases that changed the same EDITED documents apart become equal.
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";

const [folder, documents, edited] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const PouchDB = createRequire(join(folder, "package.json"))("pouchdb");
const BATCH = 1000;
const place = mkdtempSync(join(folder, "databases-"));

const job = (number) => ({
  _id: `job-${String(number).padStart(9, "0")}`,
  queue: "default", task: "echo", args: "gaF4AQ==", owner: "owner", enqueued_by: "device", created_at: 1,
  title: "title", priority: 1, status: "queued", attempt: 0, claim: 0,
});

async function make(database, count) {
  for (let start = 0; start < count; start += BATCH) {
    await database.bulkDocs(Array.from({ length: Math.min(BATCH, count - start) }, (_, index) => job(start + index)));
  }
}

async function edit(database, count, title) {
  for (let start = 0; start < count; start += BATCH) {
    const keys = Array.from({ length: Math.min(BATCH, count - start) }, (_, index) => job(start + index)._id);
    const found = await database.allDocs({ keys, include_docs: true });
    await database.bulkDocs(found.rows.map(({ doc }) => ({ ...doc, title, status: "running" })));
  }
}

async function timed(run) {
  const begun = process.hrtime.bigint();
  await run();
  return Number(process.hrtime.bigint() - begun) / 1e9;
}

const replicate = (from, to) => PouchDB.replicate(from, to, { batch_size: BATCH, batches_limit: 10 });

const [here, there] = ["here", "there"].map((name) => new PouchDB(join(place, name)));
await make(here, documents);
const cold = await timed(() => replicate(here, there));
if ((await there.info()).doc_count !== documents) throw new Error("not everything was replicated");
await edit(here, edited, "here");
await edit(there, edited, "there");
const meeting = await timed(async () => {
  await replicate(here, there);
  await replicate(there, here);
});
console.log(JSON.stringify({ cold: documents / cold, meeting }));
await Promise.all([here.close(), there.close()]);
rmSync(place, { recursive: true });
