package paging

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// bindingSealing seals a text by prefixing the time and the binding.
type bindingSealing struct{}

func (bindingSealing) Seal(_ context.Context, text, binding string) (string, error) {
	return time.Now().UTC().Format(time.RFC3339) + "\n" + binding + "\n" + text, nil
}

func (bindingSealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	at, rest, _ := strings.Cut(sealed, "\n")
	made, err := time.Parse(time.RFC3339, at)
	text, ok := strings.CutPrefix(rest, binding+"\n")
	if err != nil || !ok || time.Since(made) > maxAge {
		return "", errors.New("not sealed")
	}
	return text, nil
}

// states contains stored states by key, or the error that the store returns.
type states struct {
	byKey map[string][]byte
	ttl   time.Duration // lifetime of the state stored last
	err   error
}

func (s *states) PutState(_ context.Context, _, key string, state []byte, ttl time.Duration) error {
	s.byKey, s.ttl = map[string][]byte{key: state}, ttl
	return s.err
}

func (s *states) GetState(_ context.Context, key string) ([]byte, error) {
	if state, ok := s.byKey[key]; ok {
		return state, s.err
	}
	return nil, ErrNoState
}

// statusOf returns the status of a rejection, or 0 if err is not one.
func statusOf(err error) int {
	if refused, ok := errors.AsType[*guard.Error](err); ok {
		return refused.Status
	}
	return 0
}

// A stored state can be opened only for its token and under its key.
func TestStoredState(t *testing.T) {
	t.Parallel()
	of := Pages{Binding: "token"}
	for name, tt := range map[string]struct {
		binding func(key string) string // returns the binding of the stored state
		status  int
	}{
		"as it was stored":      {of.bindingForKey, 0},
		"that of another key":   {func(key string) string { return of.bindingForKey(key + "x") }, http.StatusNotFound},
		"that of another token": {Pages{Binding: "other"}.bindingForKey, http.StatusNotFound},
		"sealed as a link":      {func(string) string { return of.Binding }, http.StatusNotFound},
	} {
		s := &states{}
		x := Pages{Sealing: bindingSealing{}, States: s, Binding: "token"}
		state := strings.Repeat("x", maxInlineState+1)
		link, err := x.seal(t.Context(), []byte(state))
		if err != nil || len(s.byKey) != 1 || s.ttl != 24*time.Hour {
			t.Fatalf("%d states are stored for %v, %v", len(s.byKey), s.ttl, err)
		}
		for key := range s.byKey {
			sealed, _ := bindingSealing{}.Seal(t.Context(), state, tt.binding(key))
			s.byKey[key] = []byte(sealed)
		}
		if got, err := x.unseal(t.Context(), link); statusOf(err) != tt.status || (got == state) != (tt.status == 0) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestStateLimits checks which states are stored, and the errors for clients if a state cannot be stored.
func TestStateLimits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, stored, status int
		err                  error
	}{
		"a short one":             {maxInlineState, 0, 0, nil},
		"a long one":              {maxStoredState, 1, 0, nil},
		"one that is too long":    {maxStoredState + 1, 0, http.StatusForbidden, nil},
		"a store that is not up":  {maxInlineState + 1, 1, http.StatusServiceUnavailable, errors.New("not up")},
		"one that needs no store": {maxInlineState, 0, 0, errors.New("not up")},
	} {
		s := &states{err: tt.err}
		_, err := Pages{Sealing: bindingSealing{}, States: s}.seal(t.Context(), make([]byte, tt.size))
		if statusOf(err) != tt.status || (err == nil) != (tt.status == 0) || len(s.byKey) != tt.stored {
			t.Errorf("%s: %d stored, %v", name, len(s.byKey), err)
		}
	}
}

// Page links expire after a day.
func TestLinkExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := Pages{Sealing: bindingSealing{}, Binding: "token"}
		link, err := x.seal(t.Context(), []byte("state"))
		if err != nil {
			t.Fatal(err)
		}
		for _, status := range []int{0, http.StatusNotFound} {
			time.Sleep(24*time.Hour - time.Second)
			if _, err := x.unseal(t.Context(), link); statusOf(err) != status {
				t.Errorf("got %v, want status %d", err, status)
			}
		}
	})
}

// pageCases are pages to encode.
var pageCases = map[string]Page{
	"empty":       {},
	"first page":  {Method: "GET", Path: "Observation", Query: "_count=10", Position: Position{Branches: []BranchPosition{{}}}},
	"posted form": {Method: "POST", Path: "Observation/_search", Body: "code=a&_count=10", Position: Position{ReturnedCount: 7, Total: 900, Branches: []BranchPosition{{Path: "Observation", Query: "x=1", ReturnedCount: 3}}}},
	"ids of all kinds": {Path: "", Query: "_type=Observation,Condition", Position: Position{Branches: []BranchPosition{
		{IsDone: true, MayBeIncomplete: true, Pending: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e-0123456789ab", "Condition/12", "Observation/012", "Observation/0"}},
		{Query: "_getpages=1", Pending: []string{"Condition/" + strings.Repeat("x", 64), "Condition/0B3C9E2E-7F43-4A6B-9D8E-0123456789AB", "Condition/9223372036854775807", "Condition/-1", "Condition/+1"}},
		{Pending: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e0-123456789ab", "Observation/" + strings.Repeat("y", 200)}},
	}}},
}

func TestEncodePage(t *testing.T) {
	t.Parallel()
	for name, p := range pageCases {
		state := string(p.encode())
		got, err := decodePage(state)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, p)
		}
		for n := range len(state) { // decoding a truncated state may fail but not panic
			if _, err := decodePage(state[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes were accepted", name, n, len(state))
			}
		}
		if _, err := decodePage(state + "\x00"); err == nil {
			t.Errorf("%s: a state with a byte behind it was accepted", name)
		}
	}
}

func TestEncodePageIsShort(t *testing.T) {
	t.Parallel()
	var p Page
	for i := range 50 {
		p.Position.Branches = append(p.Position.Branches, BranchPosition{Pending: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e-0123456789a" + string("0123456789abcdef"[i%16])}})
	}
	if got := len(p.encode()); got > 50*25 {
		t.Errorf("50 UUIDs take %d bytes", got)
	}
}

func FuzzDecodePage(f *testing.F) {
	for _, p := range pageCases {
		f.Add(string(p.encode()))
	}
	f.Fuzz(func(t *testing.T, state string) {
		p, err := decodePage(state)
		if err != nil {
			return
		}
		if again, err := decodePage(string(p.encode())); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%v: %+v became %+v", err, p, again)
		}
	})
}
