package cache

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// combination is what an answer may depend on. Each has its own answer, which says so.
type combination struct {
	varyBy                                        VaryBy
	user, client, token, format, language, filter string
	body                                          string
}

// wants is what the answer to a combination says: whatever differs without being in it was not to be looked at.
func (x combination) wants() string {
	who := "all"
	switch {
	case x.varyBy == VaryByNone:
	case x.user != "" && x.varyBy == VaryByUser, x.user != "" && x.client == "":
		who = "user " + x.user
	case x.client != "":
		who = "client " + x.client
	case x.token != "":
		who = "token " + x.token
	}
	return fmt.Sprintf("%s|%s|%s|%s|%s|%s", who, x.format, x.language, x.filter, x.body, padding)
}

// padding makes answers worth to be compressed.
var padding = strings.Repeat("padding ", 200)

// request returns the request for a combination, written in one of several ways.
func (x combination) request(random *rand.Rand) *http.Request {
	method := http.MethodGet
	if x.body != "" {
		method = http.MethodPost
	} else if random.IntN(5) == 0 {
		method = http.MethodHead
	}
	parameters := []string{"filter=" + x.filter, "url=http://vs"}
	r := with(method, "http://h/fhir/ValueSet/$expand")
	if x.format == "xml" && random.IntN(2) == 0 || x.format == "json" && random.IntN(3) == 0 {
		parameters = append(parameters, "_format="+x.format)
		r.Header.Set("Accept", "application/fhir+json")
	} else {
		r.Header.Set("Accept", "application/fhir+"+x.format)
	}
	random.Shuffle(len(parameters), func(i, j int) { parameters[i], parameters[j] = parameters[j], parameters[i] })
	r.URL.RawQuery = strings.Join(parameters, "&")
	if x.language != "" {
		r.Header.Set("Accept-Language", x.language)
	}
	if x.token != "" {
		r.Header.Set("Authorization", x.token)
	}
	r.Header.Set("Accept-Encoding", []string{"", "gzip", "zstd", "gzip, zstd;q=0.5", "identity", "*;q=0, gzip"}[random.IntN(6)])
	r.Header.Set("X-Forwarded-For", fmt.Sprint(random.Int()))
	return r
}

// TestNobodyGetsAnothers has many ask for many things at once, while things are invalidated, and looks into each
// answer for whether it is the one that was made for exactly that.
func TestNobodyGetsAnothers(t *testing.T) {
	c := New(Options{MaxSize: 300 << 10, TTL: 20 * time.Millisecond, StaleWhileRevalidate: time.Minute, StaleIfError: time.Minute})
	pick := func(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }
	one := func(random *rand.Rand) error {
		x := combination{
			varyBy: VaryBy(random.IntN(3)), user: pick(random, "", "a", "b", "ab"), client: pick(random, "", "a", "b"), token: pick(random, "", "a", "b"),
			format: pick(random, "json", "xml"), language: pick(random, "", "de", "de,en;q=0.5"), filter: pick(random, "a", "b", "a%26b"),
		}
		if random.IntN(4) == 0 {
			x.body = pick(random, "a", "b")
		}
		r := x.request(random)
		call := &Call{Scheme: &Scheme{VaryBy: x.varyBy}, Principal: Principal{User: x.user, Client: x.client}, Body: []byte(x.body)}
		private := x.varyBy != VaryByNone && random.IntN(10) == 0
		call.Produce = func(r *http.Request) (*Answer, error) {
			// Of this request only what the key holds may be looked at.
			_, format, _ := strings.Cut(r.Header.Get("Accept"), "+")
			y := x
			y.format, y.language, y.filter = format, r.Header.Get("Accept-Language"), strings.ReplaceAll(r.URL.Query().Get("filter"), "&", "%26")
			if rand.IntN(20) == 0 {
				return nil, errDown
			}
			a := answerOf(200, y.wants(), "Content-Type: application/fhir+"+format)
			if private {
				a.Header.Set("Cache-Control", "no-store")
			}
			a.Tags = []string{x.filter}
			return a, nil
		}
		w := httptest.NewRecorder()
		if err := c.Serve(w, r, call); err != nil {
			return nil
		}
		if !strings.HasSuffix(w.Header().Get("Content-Type"), x.format) {
			return fmt.Errorf("%+v has Content-Type %s", x, w.Header().Get("Content-Type"))
		}
		if w.Header().Get("Content-Length") == "" {
			return fmt.Errorf("%+v: %v", x, w.Header())
		}
		if r.Method == http.MethodHead {
			return nil
		}
		if got := decode(t, w.Header().Get("Content-Encoding"), w.Body.Bytes()); got != x.wants() {
			return fmt.Errorf("%+v got %.60q from %s", x, got, w.Header().Get("Cache-Status"))
		}
		return nil
	}
	var all sync.WaitGroup
	var invalidated atomic.Int64
	for seed := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 7))
			for i := range 3000 {
				if err := one(random); err != nil {
					t.Error(err)
					return
				}
				if i%200 == 0 {
					invalidated.Add(int64(c.InvalidateTag("a")))
				}
			}
		})
	}
	all.Wait()
	stats := c.Stats()
	t.Logf("%+v", stats)
	if stats.Hits == 0 || stats.Misses == 0 || c.store.evicted+c.store.rejected == 0 || invalidated.Load() == 0 {
		t.Errorf("not everything happened: %+v", stats)
	}
	if err := c.store.check(); err != nil {
		t.Error(err)
	}
}
