package authorize_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// isInternalError reports whether a response is an internal error.
func isInternalError(path string, r *http.Response) bool {
	return r.StatusCode == http.StatusServiceUnavailable || redirectsTo("error=server_error")(r) ||
		r.StatusCode == http.StatusBadRequest && strings.HasPrefix(path, "/oauth2/backchannel_logout/")
}

// If a call to a store or to the keys fails, the same request succeeds when repeated, and the stored data is unchanged. The
// exceptions are completed steps: a session or consent without a code, and partial revocations, which are better than none. If
// only the response of a store is lost, refresh tokens remain usable, but single-use values are marked as used.
func TestFailureChangesNothing(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, one bool, tt request) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			forEachFault(t, p, one, false, func(f *faults, stores *faultyStores, b *authorizetest.Browser) bool {
				request := tt.prepare(b, p)
				before := stores.state(t)
				r := f.during(b, request())
				if f.hit == "" && (!tt.good(r) || f.at == 1) {
					t.Fatalf("after %d calls: %d to %q: %s", f.calls, r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
				}
				if tt.good(r) {
					return f.hit != ""
				}
				if !isInternalError(request().URL.Path, r) {
					t.Errorf("%s fails: %d to %q: %s", f.hit, r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
				}
				if changed := changedKeys(before, stores.state(t), tt.stays); len(changed) > 0 {
					t.Errorf("after a failure of %s, stored data changed: %q", f.hit, changed)
				}
				if r := b.Send(request()); !tt.good(r) {
					t.Errorf("%s fails, and the next time: %d to %q: %s", f.hit, r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
				}
				return true
			})
			if !strings.HasPrefix(tt.name, "token:") {
				return
			}
			forEachFault(t, p, one, true, func(f *faults, _ *faultyStores, b *authorizetest.Browser) bool {
				request := tt.prepare(b, p)
				if r := f.during(b, request()); tt.good(r) {
					return f.hit != ""
				}
				usedUp := strings.Contains(f.hit, "Add token") || strings.Contains(f.hit, "Add assertion")
				if r := b.Send(request()); tt.good(r) == usedUp {
					t.Errorf("the answer of %s is lost, and the next time: %d: %s", f.hit, r.StatusCode, authorizetest.Body(t, r))
				}
				return true
			})
		})
	}
	for name, one := range map[string]bool{"two stores": false, "one store": true} {
		t.Run(name, func(t *testing.T) {
			for _, tt := range requests {
				if tt.good != nil {
					run(t, one, tt)
				}
			}
		})
	}
}

// forEachFault calls try with a new server for each call that can fail, until try returns false. If one is true, a single store
// serves as both stores. If lost is true, the call succeeds but its response is lost.
func forEachFault(t *testing.T, p *providertest.Provider, one, lost bool, try func(*faults, *faultyStores, *authorizetest.Browser) bool) {
	for more, at := true, 1; more; at++ {
		f := &faults{at: at, lost: lost}
		stores := &faultyStores{
			&faultyStore{store.NewMemory(0, 0), "store", f}, &faultyStore{store.NewMemory(0, 0), "durable", f},
		}
		if one {
			stores.durable = stores.store
		}
		server := authorizetest.New(t, func(c *authorize.Config) {
			withAllFeatures(c)
			authorizetest.AllowRefreshTokens(c)
			authorizetest.UseES256(c)
			c.IdentityProviders = []people.IdentityProvider{authorizetest.HospitalProvider(p)}
			c.Store, c.DurableStore, c.Keys = stores.store, stores.durable, faultyKeys{c.Keys, f}
		})
		more = try(f, stores, authorizetest.NewBrowser(t, server))
	}
}

// during sends a request with faults armed.
func (f *faults) during(b *authorizetest.Browser, request *http.Request) *http.Response {
	f.armed = true
	defer func() { f.armed = false }()
	return b.Send(request)
}

// changedKeys returns the keys with values that differ between before and after. may lists the kinds of keys to ignore.
func changedKeys(before, after map[string]string, may string) (keys []string) {
	allowed := func(key string) bool {
		kind, _, _ := strings.Cut(key[strings.LastIndex(key, " ")+1:], ":")
		return slices.Contains(strings.Fields(may), kind)
	}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			keys = append(keys, key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			keys = append(keys, "no "+key)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(keys, allowed)
}

// outageResponse is the expected response during a store outage.
type outageResponse int

const (
	_                      outageResponse = iota // not tested
	unavailable                                  // 503 with Retry-After, and an audit event
	temporarilyUnavailable                       // temporarily_unavailable at the client's redirect URI
	goesOn                                       // succeeds
	refusedByStore                               // 400, as specified for back-channel logout
)

// During a store outage, requests that need the store return an error and others work. Afterwards
// the same request succeeds.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range requests {
		if tt.during == 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, shared := providertest.Start(t), storetest.NewSharedMemory()
			var events []audit.Event
			server := authorizetest.New(t, func(c *authorize.Config) {
				withAllFeatures(c)
				authorizetest.AllowRefreshTokens(c)
				c.IdentityProviders = []people.IdentityProvider{authorizetest.HospitalProvider(p)}
				c.Store = shared.Gateway()
				c.DurableStore = c.Store
				c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
			})
			b := authorizetest.NewBrowser(t, server)
			request := tt.prepare(b, p)
			events = nil
			shared.SetDown(true)
			checkOutage(t, b.Send(request()), tt.during)
			events = slices.DeleteFunc(events, func(e audit.Event) bool { return !errors.Is(e.Err, store.ErrUnavailable) })
			if (len(events) == 1) != (tt.during != goesOn) {
				t.Errorf("%d events: %+v", len(events), events)
			}
			shared.SetDown(false)
			if r := b.Send(request()); r.StatusCode >= http.StatusBadRequest || redirectsTo("error=")(r) {
				t.Errorf("afterwards: %d to %q: %s", r.StatusCode, r.Header.Get("Location"), authorizetest.Body(t, r))
			}
		})
	}
}

func checkOutage(t *testing.T, r *http.Response, want outageResponse) {
	t.Helper()
	body := authorizetest.Body(t, r)
	right := false
	switch want {
	case unavailable:
		right = r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != "" && omitsCause(r, body)
	case temporarilyUnavailable:
		right = r.StatusCode == http.StatusFound && redirectsTo("error=temporarily_unavailable")(r)
	case goesOn:
		right = r.StatusCode < http.StatusBadRequest && !redirectsTo("error=")(r)
	case refusedByStore:
		right = r.StatusCode == http.StatusBadRequest
	}
	if !right {
		t.Errorf("%d, Retry-After %q, to %q: %s", r.StatusCode, r.Header.Get("Retry-After"), r.Header.Get("Location"), strings.Join(strings.Fields(body)[max(0, len(strings.Fields(body))-40):], " "))
	}
}

// omitsCause reports whether an error response omits the cause.
func omitsCause(r *http.Response, body string) bool {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return !strings.Contains(body, "store")
	}
	var answer map[string]string
	return json.Unmarshal([]byte(body), &answer) == nil && len(answer) == 1 && answer["error"] == "server_error"
}

// faultyKeys are keys with calls that can fail.
type faultyKeys struct {
	keyring.Keys
	*faults
}

func (k faultyKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if err := k.next("keys.Key"); err != nil {
		return jose.JSONWebKey{}, err
	}
	return k.Keys.Key(ctx, kid)
}

func (k faultyKeys) HasKey(ctx context.Context, kid string) (bool, error) {
	if err := k.next("keys.has"); err != nil {
		return false, err
	}
	return k.Keys.HasKey(ctx, kid)
}

func (k faultyKeys) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	if err := k.next("keys.signer " + string(alg)); err != nil {
		return nil, err
	}
	return k.Keys.Signer(ctx, alg, typ)
}

func (k faultyKeys) Seal(ctx context.Context, text, binding string) (string, error) {
	if err := k.next("keys.seal"); err != nil {
		return "", err
	}
	return k.Keys.Seal(ctx, text, binding)
}

func (k faultyKeys) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	if err := k.next("keys.unseal"); err != nil {
		return "", err
	}
	return k.Keys.Unseal(ctx, sealed, binding, maxAge)
}

func (k faultyKeys) MAC(ctx context.Context, text string) ([]byte, error) {
	if err := k.next("keys.mac"); err != nil {
		return nil, err
	}
	return k.Keys.MAC(ctx, text)
}

// faults makes one call to the stores or keys fail while armed is set.
type faults struct {
	armed bool
	at    int  // index of the failing call
	lost  bool // the call succeeds, but its response is lost
	calls int
	hit   string // the failed call
}

func (f *faults) next(call string) error {
	if !f.armed {
		return nil
	}
	if f.calls++; f.calls != f.at {
		return nil
	}
	f.hit = call
	return authorizetest.ErrStoreFailed
}

// faultyStore is a store with calls that can fail.
type faultyStore struct {
	*store.Memory
	name string
	*faults
}

func (s *faultyStore) fails(method, key string) error {
	kind, _, _ := strings.Cut(key, ":")
	return s.next(s.name + "." + method + " " + kind)
}

// call executes do unless the call has to fail.
func (s *faultyStore) call(method, key string, do func() error) error {
	failed := s.fails(method, key)
	if failed != nil && !s.lost {
		return failed
	}
	return cmp.Or(failed, do())
}

func (s *faultyStore) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.call("Put", key, func() error { return s.Memory.Put(ctx, key, value, ttl) })
}

func (s *faultyStore) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.call("Add", key, func() error { return s.Memory.Add(ctx, key, value, ttl) })
}

func (s *faultyStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.fails("Get", key); err != nil {
		return nil, err
	}
	return s.Memory.Get(ctx, key)
}

func (s *faultyStore) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return s.call("Swap", key, func() error { return s.Memory.Swap(ctx, key, old, value, ttl) })
}

func (s *faultyStore) Take(ctx context.Context, key string) ([]byte, error) {
	var value []byte
	err := s.call("Take", key, func() (err error) { value, err = s.Memory.Take(ctx, key); return err })
	return value, err
}

func (s *faultyStore) Delete(ctx context.Context, key string) error {
	return s.call("Delete", key, func() error { return s.Memory.Delete(ctx, key) })
}

func (s *faultyStore) Append(ctx context.Context, key string, item []byte, limit int, ttl time.Duration) error {
	return s.call("Append", key, func() error { return s.Memory.Append(ctx, key, item, limit, ttl) })
}

// Do fails for all calls, either before or after executing them.
func (s *faultyStore) Do(ctx context.Context, calls ...*store.Call) error {
	var names []string
	for _, c := range calls {
		names = append(names, c.Op.String()+" "+store.KindOf(c.Key))
	}
	failed := s.next(s.name + ".Do " + strings.Join(names, ", "))
	if failed != nil && !s.lost {
		return failed
	}
	return cmp.Or(s.Memory.Do(ctx, calls...), failed)
}

func (s *faultyStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.fails("List", prefix); err != nil {
		return nil, err
	}
	return s.Memory.List(ctx, prefix)
}

// faultyStores are the store and the durable store of a server, with injected faults.
type faultyStores struct{ store, durable *faultyStore }

// state returns the stored data except failure counters, codes that were lost with the response,
// and second factors that were restored.
func (s *faultyStores) state(t *testing.T) map[string]string {
	state := map[string]string{}
	for _, store := range []*faultyStore{s.store, s.durable} {
		keys, err := store.Memory.List(t.Context(), "")
		authorizetest.NoError(t, err)
		for _, key := range keys {
			if value, err := store.Memory.Get(t.Context(), key); err == nil && !strings.HasPrefix(key, "lockout:") && !strings.HasPrefix(key, "code:") && string(value) != "0" {
				state[store.name+" "+key] = string(value)
			}
		}
	}
	return state
}
