// The driver of redlock for Node.js, in the words of tests/languages/drivers; see foreign.py here.
const Redis = require("ioredis")
const Redlock = require("redlock").default

const names = {}
let redlock
let lock

async function attempt(key, wait) {
    const asked = process.hrtime.bigint()
    const { name, ttl } = names[key]
    const retryDelay = 10
    lock = await redlock.acquire([name], ttl, { retryCount: Math.floor(wait / retryDelay), retryDelay, retryJitter: 5 })
    return `ok ${asked}`
}

// The library says until when a lock is valid.
const left = () => Math.max(0, lock.expiration - Date.now())

async function obey([command, ...words]) {
    switch (command) {
        case "open": {
            const ports = [...words[0].matchAll(/127\.0\.0\.1:(\d+)/g)].map((found) => Number(found[1]))
            const options = { maxRetriesPerRequest: 0, commandTimeout: 300, retryStrategy: () => 20 }
            const clients = ports.map((port) => new Redis(port, "127.0.0.1", options))
            clients.forEach((client) => client.on("error", () => {}))
            redlock = new Redlock(clients)
            redlock.on("error", () => {})
            return "ok"
        }
        case "lock":
            names[words[0]] = { name: words[1], ttl: Number(words.find((word) => word.startsWith("ttl=")).slice(4)) }
            return "ok"
        case "try":
            return attempt(words[1], 0)
        case "acquire_within":
            return attempt(words[1], Number(words[2]))
        case "valid":
            return left() > 0 ? "yes" : "no"
        case "remaining":
            return `ok ${left()}`
        case "release":
            await lock.release()
            return "ok"
        default:
            return "ok"
    }
}

let queue = Promise.resolve()
require("readline")
    .createInterface({ input: process.stdin })
    .on("line", (line) => {
        queue = queue.then(() => obey(line.split(" "))).catch(() => "timeout").then((said) => console.log(`@@ ${said}`))
    })
    .on("close", () => process.exit())
