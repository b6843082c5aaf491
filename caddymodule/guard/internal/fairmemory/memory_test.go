package fairmemory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	size     = 100
	patience = 10 * time.Second
)

// inBubble runs a test with a new Memory in a synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, m *Memory)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, New(size, patience)) })
}

// newGrownShare returns a new share with the given number of bytes.
func newGrownShare(t *testing.T, m *Memory, bytes int64) *Share {
	t.Helper()
	s := m.Share()
	if err := s.Grow(t.Context(), bytes, bytes); err != nil {
		t.Fatalf("Grow(%d) = %v", bytes, err)
	}
	return s
}

// growInBackground grows a share in a goroutine and returns the channel for the result. It must be called in a bubble.
func growInBackground(ctx context.Context, s *Share, bytes int64) chan error {
	result := make(chan error, 1)
	go func() { result <- s.Grow(ctx, bytes, bytes) }()
	synctest.Wait()
	return result
}

// checkPending fails the test if a result is available.
func checkPending(t *testing.T, result chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		t.Fatalf("Grow did not wait: %v", err)
	default:
	}
}

// wantResult fails the test unless the expected result is available.
func wantResult(t *testing.T, result chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		if !errors.Is(err, want) {
			t.Fatalf("Grow = %v, want %v", err, want)
		}
	default:
		t.Fatal("Grow waits")
	}
}

func TestGrow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		by   []int64
		want error
	}{
		{"a part", []int64{60}, nil},
		{"all", []int64{100}, nil},
		{"all, in parts", []int64{60, 40}, nil},
		{"more than there is", []int64{101}, ErrExceedsMemory},
		{"more than there is, in parts", []int64{60, 41}, ErrExceedsMemory},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := New(size, patience)
			s := m.Share()
			var err error
			for _, bytes := range test.by {
				err = s.Grow(t.Context(), bytes, bytes)
			}
			if !errors.Is(err, test.want) {
				t.Errorf("Grow = %v, want %v", err, test.want)
			}
			if m.InUse() != s.InUse() {
				t.Errorf("%d bytes are held, %d by the only share", m.InUse(), s.InUse())
			}
		})
	}
}

func TestNoBound(t *testing.T) {
	t.Parallel()
	var m *Memory
	s := m.Share()
	for range 3 {
		if err := s.Grow(t.Context(), 1<<62, 1<<62); err != nil {
			t.Fatal(err)
		}
	}
	s.ShrinkTo(1)
	s.Release()
}

func TestShrinkTo(t *testing.T) {
	t.Parallel()
	m := New(size, patience)
	s := newGrownShare(t, m, 80)
	s.ShrinkTo(90)
	if s.InUse() != 80 {
		t.Errorf("holds %d after ShrinkTo(90), want 80", s.InUse())
	}
	s.ShrinkTo(30)
	newGrownShare(t, m, 70)
	if s.InUse() != 30 || m.InUse() != 100 {
		t.Errorf("holds %d of %d, want 30 of 100", s.InUse(), m.InUse())
	}
}

func TestWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second := newGrownShare(t, m, 50), newGrownShare(t, m, 50)
		result := growInBackground(t.Context(), second, 30)
		checkPending(t, result)
		first.ShrinkTo(30)
		checkPending(t, result)
		first.Release()
		wantResult(t, result, nil)
		if m.InUse() != 80 {
			t.Errorf("%d bytes are held, want 80", m.InUse())
		}
	})
}

func TestOldestFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		old, holder := newGrownShare(t, m, 10), newGrownShare(t, m, 90)
		late := growInBackground(t.Context(), m.Share(), 5)
		first := growInBackground(t.Context(), old, 60)
		holder.ShrinkTo(60)
		checkPending(t, first)
		checkPending(t, late) // waits, although there is enough memory
		holder.ShrinkTo(30)
		wantResult(t, first, nil)
		checkPending(t, late)
		holder.Release()
		wantResult(t, late, nil)
	})
}

func TestOlderOvertakes(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		old := newGrownShare(t, m, 80)
		late := growInBackground(t.Context(), m.Share(), 50)
		if err := old.Grow(t.Context(), 20, 20); err != nil {
			t.Errorf("the older share's Grow = %v", err)
		}
		old.Release()
		wantResult(t, late, nil)
	})
}

func TestMutualWait(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second := newGrownShare(t, m, 50), newGrownShare(t, m, 50)
		late := growInBackground(t.Context(), second, 10)
		checkPending(t, late)
		early := growInBackground(t.Context(), first, 10)
		wantResult(t, late, ErrBusy)
		checkPending(t, early)
		second.Release()
		wantResult(t, early, nil)
	})
}

func TestMutualWaitAfterRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second, third := newGrownShare(t, m, 40), newGrownShare(t, m, 40), newGrownShare(t, m, 20)
		early, late := growInBackground(t.Context(), first, 50), growInBackground(t.Context(), second, 50)
		checkPending(t, early)
		checkPending(t, late)
		third.Release()
		wantResult(t, late, ErrBusy)
		second.Release()
		wantResult(t, early, nil)
	})
}

func TestPatience(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		newGrownShare(t, m, 100)
		start := time.Now()
		err := m.Share().Grow(t.Context(), 1, 1)
		if !errors.Is(err, ErrBusy) || time.Since(start) != patience {
			t.Errorf("Grow = %v after %v, want %v after %v", err, time.Since(start), ErrBusy, patience)
		}
	})
}

// The patience limits the total wait of a share, whether it waits once or several times.
func TestPatienceInAll(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder, s := newGrownShare(t, m, 100), m.Share()
		start := time.Now()
		time.AfterFunc(patience/2, func() { holder.ShrinkTo(99) })
		if err := s.Grow(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.Grow(t.Context(), 1, 1); !errors.Is(err, ErrBusy) || time.Since(start) != patience {
			t.Errorf("Grow = %v after %v, want %v after %v", err, time.Since(start), ErrBusy, patience)
		}
	})
}

// A share waits only once, for the maximum that it may need, and releases what it did not need.
func TestAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder, s := newGrownShare(t, m, 60), m.Share()
		for range 2 {
			if err := s.Grow(t.Context(), 10, 50); err != nil { // granted immediately, so nothing is reserved
				t.Fatal(err)
			}
		}
		first := make(chan error, 1)
		go func() { first <- s.Grow(t.Context(), 30, 60) }()
		checkPending(t, first)
		holder.ShrinkTo(30) // enough for now but not for the maximum
		checkPending(t, first)
		holder.ShrinkTo(20)
		wantResult(t, first, nil)
		if s.InUse() != 50 || m.InUse() != 100 {
			t.Errorf("%d in use of %d, want 50 of 100", s.InUse(), m.InUse())
		}
		if err := s.Grow(t.Context(), 20, 20); err != nil || s.InUse() != 70 || m.InUse() != 100 {
			t.Errorf("%v, %d in use of %d, want 70 of 100", err, s.InUse(), m.InUse())
		}
		if s.ShrinkTo(size); m.InUse() != 90 {
			t.Errorf("%d are held when nothing is kept for later, want 90", m.InUse())
		}
	})
}

// A share's maximum need is limited to the size of the memory.
func TestAheadIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder, s := newGrownShare(t, m, 100), m.Share()
		result := make(chan error, 1)
		go func() { result <- s.Grow(t.Context(), 10, 2*size) }()
		checkPending(t, result)
		holder.Release()
		wantResult(t, result, nil)
		if s.InUse() != 10 || m.InUse() != size {
			t.Errorf("%d in use of %d, want 10 of %d", s.InUse(), m.InUse(), size)
		}
	})
}

func TestWaiterCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		newGrownShare(t, m, 80)
		ctx, cancel := context.WithCancel(t.Context())
		leaves := growInBackground(ctx, m.Share(), 50)
		behind := growInBackground(t.Context(), m.Share(), 20)
		checkPending(t, behind)
		cancel()
		wantResult(t, leaves, context.Canceled)
		wantResult(t, behind, nil)
	})
}

func TestRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second := newGrownShare(t, m, 50), newGrownShare(t, m, 50)
		waiter := growInBackground(t.Context(), second, 10)
		second.Release()
		wantResult(t, waiter, ErrBusy)
		if err := second.Grow(t.Context(), 1, 1); !errors.Is(err, ErrBusy) {
			t.Errorf("Grow after Release = %v, want %v", err, ErrBusy)
		}
		first.Release()
		first.Release()
		if m.InUse() != 0 {
			t.Errorf("%d bytes in use at the end", m.InUse())
		}
	})
}

func TestPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder := newGrownShare(t, m, 50)
		holder2 := newGrownShare(t, m, 50)
		for range MaxWaiting {
			go m.Share().Grow(t.Context(), 1, 1)
		}
		synctest.Wait()
		if err := m.Share().Grow(t.Context(), 1, 1); !errors.Is(err, ErrBusy) {
			t.Errorf("Grow of one too many = %v, want %v", err, ErrBusy)
		}
		result := growInBackground(t.Context(), holder, 1) // a share that has bytes may wait even if the queue is full
		checkPending(t, result)
		holder2.Release()
		wantResult(t, result, nil)
	})
}

// A thousand shares of various sizes, up to the entire memory, finish without a deadlock, and most of them within their
// patience.
func TestThousand(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		var served atomic.Int64
		var group sync.WaitGroup
		start := time.Now()
		for i := range MaxWaiting {
			group.Go(func() {
				if fill(t.Context(), m, rand.New(rand.NewPCG(1, uint64(i)))) {
					served.Add(1)
				}
				if inUse := m.InUse(); inUse > size {
					t.Errorf("%d bytes in use", inUse)
				}
			})
		}
		group.Wait()
		if m.InUse() != 0 {
			t.Errorf("%d bytes in use at the end", m.InUse())
		}
		if n := served.Load(); n < MaxWaiting/2 || time.Since(start) != 0 {
			t.Errorf("%d of %d grew, in %v", n, MaxWaiting, time.Since(start))
		}
	})
}

// fill grows a share in small steps and reports whether it succeeded.
func fill(ctx context.Context, m *Memory, r *rand.Rand) bool {
	s := m.Share()
	defer s.Release()
	for range 1 + r.IntN(10) {
		if err := s.Grow(ctx, 1+r.Int64N(size/10), 0); err != nil {
			return false
		}
	}
	return true
}

// shareOf returns a share owned by a person and a client.
func (m *Memory) shareOf(person, client string) *Share {
	return m.Share(Person("issuer", person), Client("issuer", client))
}

// newOwnedShare returns a share with some bytes that is owned by a person and a client.
func newOwnedShare(t *testing.T, m *Memory, person, client string, bytes int64) *Share {
	t.Helper()
	s := m.shareOf(person, client)
	if err := s.Grow(t.Context(), bytes, bytes); err != nil {
		t.Fatalf("Grow(%d) of %s with %s = %v", bytes, person, client, err)
	}
	return s
}

// While two shares of person alice and client app use 20 of 100 bytes, requests beyond an owner's part wait.
func TestOwnersPart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		share func(m *Memory) *Share
		bytes int64
		waits bool
	}{
		{"the rest of the person's quarter", func(m *Memory) *Share { return m.shareOf("alice", "app") }, 5, false},
		{"more than the person's quarter", func(m *Memory) *Share { return m.shareOf("alice", "app") }, 6, true},
		{"the person with another client", func(m *Memory) *Share { return m.shareOf("alice", "other") }, 6, true},
		{"another person with the client", func(m *Memory) *Share { return m.shareOf("bob", "app") }, 30, false},
		{"more than the client's half", func(m *Memory) *Share { return m.shareOf("bob", "app") }, 31, true},
		{"the client itself", func(m *Memory) *Share { return m.Share(Client("issuer", "app")) }, 31, true},
		{"all of the rest for another client", func(m *Memory) *Share { return m.shareOf("bob", "other") }, 80, false},
		{"a person of the same name of another issuer", func(m *Memory) *Share { return m.Share(Person("another", "alice")) }, 80, false},
		{"a client of the same name of another issuer", func(m *Memory) *Share { return m.Share(Client("another", "app")) }, 80, false},
		{"a person of the name of the client", func(m *Memory) *Share { return m.Share(Person("issuer", "app")) }, 80, false},
		{"a network of the name of the client", func(m *Memory) *Share { return m.Share(Network("app")) }, 80, false},
		{"more than there is", func(m *Memory) *Share { return m.shareOf("bob", "other") }, 81, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *Memory) {
				first, second := newOwnedShare(t, m, "alice", "app", 10), newOwnedShare(t, m, "alice", "app", 10)
				result := growInBackground(t.Context(), tt.share(m), tt.bytes)
				if tt.waits {
					checkPending(t, result)
				}
				first.Release()
				second.Release()
				wantResult(t, result, nil)
			})
		})
	}
}

// The only request of an owner may use the entire memory. The next one may use only the rest of the owner's part.
func TestOnlyHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		large := newOwnedShare(t, m, "alice", "app", 60)
		next := growInBackground(t.Context(), m.shareOf("alice", "app"), 1)
		checkPending(t, next)
		if err := large.Grow(t.Context(), 40, 40); err != nil {
			t.Errorf("Grow of the only holder = %v", err)
		}
		large.ShrinkTo(24)
		wantResult(t, next, nil)
	})
}

// Requests that wait for their owner's part do not delay others and do not fill the queue.
func TestNeighborOfWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder := newOwnedShare(t, m, "alice", "app", 50)
		ctx, cancel := context.WithCancel(t.Context())
		for range MaxWaiting {
			go m.shareOf("alice", "app").Grow(ctx, 1, 1)
		}
		synctest.Wait()
		if err := m.shareOf("alice", "app").Grow(t.Context(), 1, 1); !errors.Is(err, ErrBusy) {
			t.Errorf("Grow of one too many = %v, want %v", err, ErrBusy)
		}
		start := time.Now()
		neighbor := m.shareOf("bob", "other")
		if err := neighbor.Grow(t.Context(), 10, 40); err != nil || m.InUse() != 60 {
			t.Errorf("a neighbor's Grow = %v, with %d bytes held, want 60", err, m.InUse())
		}
		neighbor.Release()
		holder.ShrinkTo(30)
		newOwnedShare(t, m, "bob", "app", 20).Release()
		if time.Since(start) != 0 {
			t.Errorf("neighbors waited for %v", time.Since(start))
		}
		checkPending(t, growInBackground(t.Context(), m.shareOf("bob", "app"), 21)) // waits: it exceeds the client's half, but the queue is not full
		cancel()
	})
}

// Requests of one client do not overtake each other; otherwise, a large request could wait forever.
func TestOwnersOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second := newOwnedShare(t, m, "alice", "app", 20), newOwnedShare(t, m, "bob", "app", 20)
		large := growInBackground(t.Context(), m.shareOf("carol", "app"), 25)
		small := growInBackground(t.Context(), m.shareOf("dave", "app"), 5)
		checkPending(t, large)
		checkPending(t, small) // waits, although there is enough memory
		first.Release()
		wantResult(t, large, nil)
		wantResult(t, small, nil)
		second.Release()
	})
}

// A share that waits for total memory, after waiting for its client's part, does not block a younger one that has bytes.
func TestHoldersFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		slow := newOwnedShare(t, m, "alice", "app", 30)
		early := growInBackground(t.Context(), m.Share(Client("issuer", "app")), 40)
		neighbor := newOwnedShare(t, m, "bob", "other", 60)
		slow.ShrinkTo(10) // the client's part allows 40 more bytes, but the total does not
		checkPending(t, early)
		late := growInBackground(t.Context(), neighbor, 40)
		checkPending(t, late)
		slow.Release()
		wantResult(t, late, nil)
		neighbor.Release()
		wantResult(t, early, nil)
	})
}

// If shares of the same owners deadlock, the youngest is rejected immediately, although other owners could still use memory.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	type holder struct {
		person, client string
		holds, wants   int64
	}
	for _, tt := range []struct {
		name    string
		holders []holder // oldest first
		refused int      // index of the rejected share; -1 for none
	}{
		{"of a person", []holder{{"alice", "app", 10, 10}, {"alice", "other", 10, 10}}, 1},
		{"of a client", []holder{{"alice", "app", 20, 5}, {"bob", "app", 20, 5}, {"carol", "app", 10, 5}}, 2},
		{
			"some wait for persons, others for the client",
			[]holder{{"alice", "app", 12, 1}, {"bob", "app", 12, 1}, {"alice", "app", 12, 5}, {"bob", "app", 12, 5}, {"carol", "app", 2, 5}}, 4,
		},
		{"none: one can proceed", []holder{{"alice", "app", 10, 10}, {"alice", "other", 10, 0}}, -1},
		{
			"none: one waits for a client with another holder that can proceed",
			[]holder{{"alice", "app", 12, 1}, {"alice", "app", 12, 5}, {"bob", "app", 26, 0}}, -1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *Memory) {
				newGrownShare(t, m, 5)
				var shares []*Share
				for _, h := range tt.holders {
					shares = append(shares, newOwnedShare(t, m, h.person, h.client, h.holds))
				}
				var results []chan error
				for i, h := range tt.holders {
					if h.wants > 0 {
						results = append(results, growInBackground(t.Context(), shares[i], h.wants))
					}
				}
				for i, result := range results {
					if i == tt.refused {
						wantResult(t, result, ErrBusy)
					} else {
						checkPending(t, result)
					}
				}
				for _, s := range shares {
					s.Release()
				}
			})
		})
	}
}

// No state is stored for owners without requests or for requests that don't need memory.
func TestOwnersAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second, idle := newOwnedShare(t, m, "alice", "app", 10), newOwnedShare(t, m, "bob", "app", 10), m.shareOf("carol", "other")
		if len(m.ownerPools) != 3 {
			t.Errorf("%d owners are kept, want 3", len(m.ownerPools))
		}
		for _, s := range []*Share{first, second, second, idle} {
			s.Release()
		}
		if len(m.ownerPools) != 0 {
			t.Errorf("%d owners are kept in the end", len(m.ownerPools))
		}
	})
}
