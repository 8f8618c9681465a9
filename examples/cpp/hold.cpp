// The short story: acquire a lock like a std::mutex, send its fence to the resource, and release it.
// Then two locks at once.
//
//     make && ./hold
//
// uses the store that LEASEHOLD_URL names, or else the embedded one.

#include <leasehold.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

// The resource that the lock protects. It remembers the largest fence that it has seen, and rejects a
// smaller one. A resource needs nothing more.
class till {
public:
    bool charge(int amount, std::uint64_t fence) {
        if (fence < largest_fence_) return false;
        largest_fence_ = fence;
        charged_ += amount;
        return true;
    }
    int charged() const { return charged_; }

private:
    std::uint64_t largest_fence_ = 0;
    int charged_ = 0;
};

static void expect(bool so, const std::string &what) {
    if (!so) throw std::runtime_error{"this should not be: " + what};
}

static std::string unused_name(const std::string &name) {
    std::random_device random;
    return name + ":" + std::to_string(random());
}

static void one_lock(const leasehold::client &client) {
    leasehold::mutex stock{client.lock(unused_name("stock:sku-17")).ttl(10s)};
    const std::string name = stock.options().name();
    till till;
    std::uint64_t old_fence = 0;

    // Another client, as another process would have it.
    const auto elsewhere = leasehold::client::from_env();
    leasehold::mutex theirs{elsewhere, name};

    if (std::unique_lock held{stock, 5s}; held) {
        old_fence = stock.fence();
        std::cout << name << " was free and is ours, with fence " << old_fence << ".\n"
                  << "For the next " << stock.remaining().count() << " ms that may be relied on.\n";
        expect(till.charge(20, old_fence), "our charge was refused");

        expect(!theirs.try_lock(), "two holders at once");
        std::cout << "Somebody else tries, and is told at once that it is taken.\n";

        // A std::unique_lock with a limit may return without the lock: check it.
        const std::unique_lock late{theirs, 300ms};
        expect(!late.owns_lock(), "two holders at once");
        std::cout << "The second one waits for 300 ms, and its std::unique_lock owns nothing.\n";
    } else {
        throw std::runtime_error{"nobody else knows this name, and yet it is taken"};
    }
    // A mutex that machines share can be lost, so ask how it ended.
    expect(!stock.unlock_error(), "it was lost");
    std::cout << "Ours goes out of scope: it was ours to the end, and it is free.\n";

    std::unique_lock held{theirs};
    std::cout << "The second one takes it, with the larger fence " << theirs.fence() << ".\n";
    expect(theirs.fence() > old_fence, "the fence did not grow");
    expect(till.charge(10, theirs.fence()), "the second charge was refused");

    expect(!till.charge(20, old_fence) && till.charged() == 30, "a late charge went through");
    std::cout << "A charge of ours that was on its way all the time is refused.\n";

    held.release()->release(); // as unlock(), but throws if it was lost
    expect(!stock.options().inspect().held, "it is still held");
    std::cout << "The second one gives it back in the way that would have told of a loss.\n";
}

// Two accounts, and threads that move money between them in both directions: std::scoped_lock
// acquires both locks without a deadlock, whatever their order.
static void two_locks(const leasehold::client &client) {
    leasehold::mutex mine{client, unused_name("account")};
    leasehold::mutex yours{client, unused_name("account")};
    int my_money = 100;
    int your_money = 100;

    std::thread back{[&] {
        for (int turn = 0; turn < 5; ++turn) {
            const std::scoped_lock both{yours, mine};
            your_money -= 10;
            my_money += 10;
        }
    }};
    for (int turn = 0; turn < 5; ++turn) {
        const std::scoped_lock both{mine, yours};
        my_money -= 7;
        your_money += 7;
    }
    back.join();
    std::cout << "Two accounts, moved between in both directions: " << my_money << " and "
              << your_money << ".\n";
    expect(my_money == 115 && your_money == 85, "money was lost");
}

int main() {
    try {
        const auto client = leasehold::client::from_env();
        std::cout << "The locks are kept in " << client.store() << ".\n";
        one_lock(client);
        two_locks(client);
        return EXIT_SUCCESS;
    } catch (const std::exception &problem) {
        std::cerr << problem.what() << '\n';
        return EXIT_FAILURE;
    }
}
