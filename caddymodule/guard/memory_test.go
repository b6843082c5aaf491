package guard

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// counting is a KeySet that can be told to fail, and counts.
type counting struct {
	keySet
	calls int
}

func (c *counting) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	c.calls++
	return c.keySet.Key(ctx, kid)
}

// remembering is a verifier with a memory and the real clock.
func remembering(size int) *Verifier {
	v := testVerifier()
	v.Memory, v.Now = NewMemory(size), nil
	return v
}

// remembered says whether the memory has the token.
func (v *Verifier) remembered(token string) bool {
	_, ok := v.Memory.get(v.policy().remembranceID(token))
	return ok
}

func TestMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := remembering(8)
		token := mint{}.tokenAt(t, time.Now())
		first, err := v.Verify(t.Context(), token)
		if err != nil || !v.remembered(token) {
			t.Fatalf("remembered: %t, error %v", v.remembered(token), err)
		}
		second, err := v.Verify(t.Context(), token)
		if err != nil || second != first {
			t.Errorf("second time %+v, %v, want %+v", second, err, first)
		}
	})
}

// A remembered token ends with exp; the leeway is for a verification anew.
func TestMemoryExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := remembering(8)
		token := mint{}.tokenAt(t, time.Now())
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Second)
		if _, err := v.Verify(t.Context(), token); err != nil || !v.remembered(token) {
			t.Errorf("before exp: remembered %t, %v", v.remembered(token), err)
		}
		time.Sleep(2 * time.Second)
		if v.remembered(token) {
			t.Error("after exp: remembered")
		}
		if _, err := v.Verify(t.Context(), token); err != nil || v.remembered(token) {
			t.Errorf("within the leeway: remembered %t, %v", v.remembered(token), err)
		}
		time.Sleep(defaultLeeway)
		wantRefused(t, v, token, ErrExpired)
	})
}

// The memory's clock is the process's; the verifier's own one counts.
func TestMemoryOwnClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	v := remembering(8)
	v.Now = func() time.Time { return now }
	token := mint{}.tokenAt(t, now)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	wantRefused(t, v, token, ErrExpired)
}

func TestMemoryForgetsNoFailure(t *testing.T) {
	t.Parallel()
	v := remembering(8)
	valid := mint{}.tokenAt(t, time.Now())
	if _, err := v.Verify(t.Context(), valid); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, token string
		want        error
	}{
		{"truncated", valid[:len(valid)-1], errMalformed},
		{"extended", valid + "AAAA", ErrSignature},
		{"last bits changed", lastBitsChanged(valid), errMalformed},
		{"same jti, another signer", mint{key: secondKey()}.tokenAt(t, time.Now()), ErrSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 {
				wantRefused(t, v, test.token, test.want)
				if v.remembered(test.token) {
					t.Error("remembered")
				}
			}
		})
	}
}

// What one verifier remembers is nothing to one with another policy.
func TestMemoryPolicies(t *testing.T) {
	t.Parallel()
	token := mint{}.tokenAt(t, time.Now())
	for _, test := range []struct {
		name   string
		change func(*Verifier)
		want   error
	}{
		{"another issuer", func(v *Verifier) { v.Issuer = "https://other.example" }, errIssuer},
		{"another audience", func(v *Verifier) { v.Audience = "https://other.example/fhir" }, errAudience},
		{"parts set apart otherwise", func(v *Verifier) {
			v.Issuer, v.Audience = testIssuer+testAudience[:1], testAudience[1:]
		}, errIssuer},
		{"other keys", func(v *Verifier) { v.Keys = &keySet{} }, ErrUnknownKey},
		{"another key of that kid", func(v *Verifier) {
			v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"first": testKeys().keys["second"]}}
		}, ErrSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := remembering(8)
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			other := *v
			test.change(&other)
			wantRefused(t, &other, token, test.want)
		})
	}
	v, other := remembering(8), testVerifier()
	if other.Memory, other.Leeway = v.Memory, time.Minute; other.policy().remembranceID(token) == v.policy().remembranceID(token) {
		t.Error("two leeways share what they remember")
	}
}

// Revocations are asked each time, keys too; both fail closed.
func TestMemoryAsks(t *testing.T) {
	t.Parallel()
	v := remembering(8)
	keys := &counting{keySet: *testKeys()}
	v.Keys = keys
	asked, answer, failure := 0, false, error(nil)
	v.Revoked = func(context.Context, string) (bool, error) { asked++; return answer, failure }
	token := mint{}.tokenAt(t, time.Now())
	for range 3 {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 || keys.calls != 3 {
		t.Errorf("revocations were asked %d times, keys %d times", asked, keys.calls)
	}
	answer = true
	wantRefused(t, v, token, errRevoked)
	answer, failure = false, errors.New("broken store")
	_, err := v.Verify(t.Context(), token)
	wantError(t, err, http.StatusServiceUnavailable, "", failure)
	failure, keys.err = nil, errors.New("broken keys")
	_, err = v.Verify(t.Context(), token)
	wantError(t, err, http.StatusServiceUnavailable, "", keys.err)
}

// What is kept with a token is found at its next request, also when its key was read anew, and by no other policy.
func TestMemo(t *testing.T) {
	t.Parallel()
	v := remembering(8)
	token := mint{}.tokenAt(t, time.Now())
	first, err := v.Verify(t.Context(), token)
	if err != nil || first.Memo.Load() != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	first.Memo.Store("kept")
	anew := *testKeys().keys["first"].Key.(*ecdsa.PublicKey)
	v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"first": {Key: &anew, KeyID: "first", Algorithm: "ES256"}}}
	if again, err := v.Verify(t.Context(), token); err != nil || again != first || again.Memo.Load() != "kept" {
		t.Errorf("%+v, %v", again, err)
	}
	other := *v
	other.Leeway = time.Minute
	if theirs, err := other.Verify(t.Context(), token); err != nil || theirs.Memo.Load() != nil {
		t.Errorf("another policy: %+v, %v", theirs, err)
	}
	other.Memory = nil
	if theirs, err := other.Verify(t.Context(), token); err != nil || theirs.Memo != nil {
		t.Errorf("without memory: %+v, %v", theirs, err)
	}
}

func TestMemoryBound(t *testing.T) {
	t.Parallel()
	const size = 10
	m := NewMemory(size)
	for i := range 1000 {
		m.put(remembranceID{byte(i), byte(i >> 8)}, i, time.Hour)
		if n, _ := m.tokens.Held(); n > size {
			t.Fatalf("%d are remembered", n)
		}
		if known, ok := m.get(remembranceID{}); !ok || known != 0 {
			t.Fatalf("after %d others, the one in use is %+v, %t", i, known, ok)
		}
	}
	if _, ok := m.get(remembranceID{1}); ok {
		t.Error("one that is not in use is remembered")
	}
}

func TestMemoryLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, a := NewMemory(2), remembranceID{1}
		for _, lifetime := range []time.Duration{0, -1, -time.Hour} {
			m.put(a, remembrance{}, lifetime)
			if n, _ := m.tokens.Held(); n != 0 {
				t.Errorf("remembered for %v", lifetime)
			}
		}
		m.put(a, remembrance{}, time.Minute)
		m.put(remembranceID{2}, remembrance{}, time.Hour)
		time.Sleep(30 * time.Second)
		if _, ok := m.get(a); !ok {
			t.Error("a is forgotten")
		}
		time.Sleep(31 * time.Second)
		if _, ok := m.get(a); ok {
			t.Error("a lives longer for its use")
		}
	})
}

func TestMemoryNil(t *testing.T) {
	t.Parallel()
	var m *Memory
	a := remembranceID{1}
	m.put(a, remembrance{}, time.Hour)
	if _, ok := m.get(a); ok {
		t.Error("nothing remembers something")
	}
	if NewMemory(0).tokens.MaxEntries != DefaultMemorySize {
		t.Error("no default size")
	}
}

func TestMemoryConcurrently(t *testing.T) {
	t.Parallel()
	v := remembering(4)
	var group sync.WaitGroup
	for i := range 8 {
		token := mint{claims: map[string]any{"sub": fmt.Sprint(i)}}.tokenAt(t, time.Now())
		for range 2 {
			group.Go(func() {
				for range 5 {
					if got, err := v.Verify(t.Context(), token); err != nil || got.Subject != fmt.Sprint(i) {
						t.Errorf("got %+v, %v, want subject %d", got, err, i)
					}
				}
			})
		}
	}
	group.Wait()
}

func BenchmarkVerify(b *testing.B) {
	for _, bench := range []struct {
		name   string
		memory *Memory
	}{{"uncached", nil}, {"cached", NewMemory(100)}} {
		b.Run(bench.name, func(b *testing.B) {
			v := testVerifier()
			v.Now, v.Memory, v.Revoked = nil, bench.memory, revoked(false, nil)
			token := mint{}.tokenAt(b, time.Now())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
