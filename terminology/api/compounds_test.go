package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// TestGermanCompounds has compounds found by their parts: where concepts are scanned, where they are indexed, and in what
// is fetched whole; and only in German.
func TestGermanCompounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		language string
		more     int // concepts
		want     string
	}{{"de", 0, "1 2"}, {"de", 512, "1 2"}, {"de-AT", 0, "1 2"}, {"en", 0, "2"}, {"en", 512, "2"}} {
		t.Run(fmt.Sprintf("%s, %d more", test.language, test.more), func(t *testing.T) {
			t.Parallel()
			concepts := `{"code":"1","display":"Kniegelenkschmerz"},{"code":"2","display":"Schmerz am Knie"},{"code":"3","display":"Gelenkersatz"},{"code":"4","display":"Gelenk"}`
			for i := range test.more {
				concepts += fmt.Sprintf(`,{"code":"x%d","display":"anderes"}`, i)
			}
			file := filepath.Join(t.TempDir(), "cs.json")
			if err := os.WriteFile(file, []byte(`{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete","language":"`+test.language+`","concept":[`+concepts+`]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}})
			if err != nil {
				t.Fatal(err)
			}
			wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "schmerz knie"), test.want)
			w := gather(t, &Handler{Library: l}, new(expansion.WholeBuilder), 1000, "url", "http://x/all", "displayLanguage", test.language)
			if got := strings.Join(fromWhole(t, w, expansion.Page{Filter: "schmerz knie"}).codes(), " "); got != test.want {
				t.Errorf("fetched whole: got %q, want %q", got, test.want)
			}
		})
	}
}
