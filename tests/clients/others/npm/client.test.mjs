// The openai package of npm against a running server: HEADWAY_URL and HEADWAY_MODEL say which.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const model = process.env.HEADWAY_MODEL;
const client = new OpenAI({ baseURL: process.env.HEADWAY_URL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const PARIS = "The capital of France is Paris.";

test("models", async () => {
  const names = [];
  for await (const entry of client.models.list()) names.push(entry.id);
  assert.deepEqual(names, [model]);
});

test("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages, temperature: 0 });
  assert.equal(answer.choices[0].message.content, PARIS);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.completion_tokens, 8);
});

test("chat, streamed", async () => {
  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  let said = "";
  let usage;
  for await (const chunk of stream) {
    said += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(said, PARIS);
  assert.equal(usage.completion_tokens, 8);
});

test("chat, by the stream helper", async () => {
  const runner = client.chat.completions.stream({ model, messages, temperature: 0 });
  let said = "";
  runner.on("content", (delta) => { said += delta; });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, PARIS);
  assert.equal(said, PARIS);
});

test("completion, n choices with a seed", async () => {
  const ask = () => client.completions.create({
    model, prompt: "Once upon a time", n: 2, seed: 7, max_tokens: 8,
  });
  const [first, second] = [await ask(), await ask()];
  assert.equal(first.choices.length, 2);
  assert.deepEqual(second.choices.map((c) => c.text), first.choices.map((c) => c.text));
});

test("logprobs", async () => {
  const answer = await client.chat.completions.create({
    model, messages, temperature: 0, max_tokens: 4, logprobs: true, top_logprobs: 2,
  });
  const tokens = answer.choices[0].logprobs.content;
  assert.equal(tokens.map((t) => t.token).join(""), answer.choices[0].message.content);
  assert.ok(tokens.every((t) => t.top_logprobs.length === 2));
});

test("a stream can be left, and the client goes on", async () => {
  const stream = await client.completions.create({
    model, prompt: "Count:", max_tokens: 4000, stream: true, ignore_eos: true,
  });
  let count = 0;
  for await (const _ of stream) if (++count === 3) break;
  const answer = await client.completions.create({ model, prompt: "Hi", max_tokens: 1 });
  assert.equal(answer.choices.length, 1);
});

test("errors have the classes of the package", async () => {
  const ask = (fields) => client.chat.completions.create({ model, messages, ...fields });
  await assert.rejects(ask({ temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(ask({ model: "gpt-4o" }), OpenAI.NotFoundError);
});
