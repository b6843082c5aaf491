package fairmemory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// shareOf returns a share of a person with a client.
func (m *Memory) shareOf(person, client string) *Share {
	return m.Share(Person("issuer", person), Client("issuer", client))
}

// ownedBy returns a share of a person with a client that holds some bytes.
func ownedBy(t *testing.T, m *Memory, person, client string, bytes int64) *Share {
	t.Helper()
	s := m.shareOf(person, client)
	if err := s.Grow(t.Context(), bytes, bytes); err != nil {
		t.Fatalf("Grow(%d) of %s with %s = %v", bytes, person, client, err)
	}
	return s
}

// TestOwnersPart checks whose requests wait while two shares of alice with the client app hold 20 bytes of 100.
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
				first, second := ownedBy(t, m, "alice", "app", 10), ownedBy(t, m, "alice", "app", 10)
				result := growing(t.Context(), tt.share(m), tt.bytes)
				if tt.waits {
					pending(t, result)
				}
				first.Release()
				second.Release()
				wantResult(t, result, nil)
			})
		})
	}
}

// TestOnlyHolder checks that the only request of an owner may take all that there is, and the next one only the rest of the
// owner's part.
func TestOnlyHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		large := ownedBy(t, m, "alice", "app", 60)
		next := growing(t.Context(), m.shareOf("alice", "app"), 1)
		pending(t, next)
		if err := large.Grow(t.Context(), 40, 40); err != nil {
			t.Errorf("Grow of the only holder = %v", err)
		}
		large.ShrinkTo(24)
		wantResult(t, next, nil)
	})
}

// TestNeighborOfWaiters checks that requests that wait for their owner's part do not make others wait, nor take all places.
func TestNeighborOfWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		holder := ownedBy(t, m, "alice", "app", 50)
		ctx, cancel := context.WithCancel(t.Context())
		for range Places {
			go m.shareOf("alice", "app").Grow(ctx, 1, 1)
		}
		synctest.Wait()
		if err := m.shareOf("alice", "app").Grow(t.Context(), 1, 1); !errors.Is(err, ErrBusy) {
			t.Errorf("Grow of one too many = %v, want %v", err, ErrBusy)
		}
		start := time.Now()
		neighbor := m.shareOf("bob", "other")
		if err := neighbor.Grow(t.Context(), 10, 40); err != nil || m.Held() != 60 {
			t.Errorf("a neighbor's Grow = %v, with %d bytes held, want 60", err, m.Held())
		}
		neighbor.Release()
		holder.ShrinkTo(30)
		ownedBy(t, m, "bob", "app", 20).Release()
		if time.Since(start) != 0 {
			t.Errorf("neighbors waited for %v", time.Since(start))
		}
		pending(t, growing(t.Context(), m.shareOf("bob", "app"), 21)) // beyond the client's half, but there is a place
		cancel()
	})
}

// TestOwnersOrder checks that requests of one client do not overtake each other, or a large one would wait for ever.
func TestOwnersOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second := ownedBy(t, m, "alice", "app", 20), ownedBy(t, m, "bob", "app", 20)
		large := growing(t.Context(), m.shareOf("carol", "app"), 25)
		small := growing(t.Context(), m.shareOf("dave", "app"), 5)
		pending(t, large)
		pending(t, small) // though there is enough for it
		first.Release()
		wantResult(t, large, nil)
		wantResult(t, small, nil)
		second.Release()
	})
}

// TestHoldersFirst checks that a share that waited for its client's part, and then waits for room, does not keep a younger
// one from going on that holds some.
func TestHoldersFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		slow := ownedBy(t, m, "alice", "app", 30)
		early := growing(t.Context(), m.Share(Client("issuer", "app")), 40)
		neighbor := ownedBy(t, m, "bob", "other", 60)
		slow.ShrinkTo(10) // room for the client, but not for 40 more in all
		pending(t, early)
		late := growing(t.Context(), neighbor, 40)
		pending(t, late)
		slow.Release()
		wantResult(t, late, nil)
		neighbor.Release()
		wantResult(t, early, nil)
	})
}

// TestDeadlock is over holders that wait for each other within their owners' parts. The youngest is refused at once, though
// there is room for others, one of which holds some.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	type holder struct {
		person, client string
		holds, wants   int64
	}
	for _, tt := range []struct {
		name    string
		holders []holder // the oldest first
		refused int      // -1: nobody
	}{
		{"of a person", []holder{{"alice", "app", 10, 10}, {"alice", "other", 10, 10}}, 1},
		{"of a client", []holder{{"alice", "app", 20, 5}, {"bob", "app", 20, 5}, {"carol", "app", 10, 5}}, 2},
		{
			"some wait for persons, others for the client",
			[]holder{{"alice", "app", 12, 1}, {"bob", "app", 12, 1}, {"alice", "app", 12, 5}, {"bob", "app", 12, 5}, {"carol", "app", 2, 5}}, 4,
		},
		{"none: one can go on", []holder{{"alice", "app", 10, 10}, {"alice", "other", 10, 0}}, -1},
		{
			"none: one waits for a client of which another holder can go on",
			[]holder{{"alice", "app", 12, 1}, {"alice", "app", 12, 5}, {"bob", "app", 26, 0}}, -1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *Memory) {
				grown(t, m, 5)
				var shares []*Share
				for _, h := range tt.holders {
					shares = append(shares, ownedBy(t, m, h.person, h.client, h.holds))
				}
				var results []chan error
				for i, h := range tt.holders {
					if h.wants > 0 {
						results = append(results, growing(t.Context(), shares[i], h.wants))
					}
				}
				for i, result := range results {
					if i == tt.refused {
						wantResult(t, result, ErrBusy)
					} else {
						pending(t, result)
					}
				}
				for _, s := range shares {
					s.Release()
				}
			})
		})
	}
}

// TestOwnersAreForgotten checks that nothing is kept for owners without requests, nor for requests that need no memory.
func TestOwnersAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory) {
		first, second, idle := ownedBy(t, m, "alice", "app", 10), ownedBy(t, m, "bob", "app", 10), m.shareOf("carol", "other")
		if len(m.owned) != 3 {
			t.Errorf("%d owners are kept, want 3", len(m.owned))
		}
		for _, s := range []*Share{first, second, second, idle} {
			s.Release()
		}
		if len(m.owned) != 0 {
			t.Errorf("%d owners are kept in the end", len(m.owned))
		}
	})
}
