package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// TestExpansionFromRedis measures whether a second-level expansion cache in Redis would be useful. It compares the time to
// generate an expansion with the time to read a response of the same size from Redis on loopback.
func TestExpansionFromRedis(t *testing.T) {
	redis := startRedis(t)
	ctx := t.Context()
	for _, codes := range []int{1000, 10_000} {
		file := filepath.Join(t.TempDir(), "definitions.json")
		if err := os.WriteFile(file, []byte(codeSystemOf(codes)), 0o600); err != nil {
			t.Fatal(err)
		}
		library, err := terminology.Load(ctx, definitions.Options{Definitions: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		handler := &api.Handler{Library: library}
		expand := func(filter string) []byte {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url=http://x.example/vs&filter="+filter, nil)
			if err := handler.Expand(w, r); err != nil {
				t.Fatal(err)
			}
			return w.Body.Bytes()
		}
		for _, filter := range []string{"", "concept"} {
			body := expand(filter)
			if err := redis.client.Set(ctx, "expansion", body, 0).Err(); err != nil {
				t.Fatal(err)
			}
			made := averageCost(func() { expand(filter) })
			got := averageCost(func() {
				if got, err := redis.client.Get(ctx, "expansion").Bytes(); err != nil || len(got) != len(body) {
					t.Fatal(err)
				}
			})
			t.Logf("%7d bytes, filter %-9q made here: %v; got from Redis: %v", len(body), filter, made, got)
		}
	}
}

// codeSystemOf returns a code system with the given number of codes, and a value set that contains all of them.
func codeSystemOf(codes int) string {
	var concepts []string
	for n := range codes {
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":"Concept number %d of those that are measured"}`, n, n))
	}
	return `{"resourceType":"Bundle","type":"collection","entry":[{"resource":{"resourceType":"CodeSystem","url":"http://x.example/cs","status":"active","content":"complete","concept":[` +
		strings.Join(concepts, ",") + `]}},{"resource":{"resourceType":"ValueSet","url":"http://x.example/vs","status":"active","compose":{"include":[{"system":"http://x.example/cs"}]}}}]}`
}

// cost is the average cost of one operation.
type cost struct{ elapsed, cpu time.Duration }

func (c cost) String() string {
	return fmt.Sprintf("%v (CPU of this process %v)", c.elapsed.Round(10*time.Microsecond), c.cpu.Round(10*time.Microsecond))
}

// averageCost calls do repeatedly for one second.
func averageCost(do func()) cost {
	do()
	began, before, n := time.Now(), processCPU(), 0
	for ; time.Since(began) < time.Second; n++ {
		do()
	}
	return cost{time.Since(began) / time.Duration(n), (processCPU() - before) / time.Duration(n)}
}
