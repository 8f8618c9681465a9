// Runs the JavaScript that it is sent, a line of JSON each, and answers with what that returns.
const Redis = require("ioredis")
const Redlock = require("redlock").default
const semaphore = require("redis-semaphore")

const Code = (async () => {}).constructor
const kept = {}

async function run(code) {
    try {
        const value = await new Code("Redis", "Redlock", "semaphore", "kept", code)(Redis, Redlock, semaphore, kept)
        return { value: value === undefined ? null : value }
    } catch (error) {
        return { error: String(error) }
    }
}

require("readline")
    .createInterface({ input: process.stdin })
    .on("line", async (line) => console.log(JSON.stringify(await run(JSON.parse(line)))))
    .on("close", () => process.exit())
