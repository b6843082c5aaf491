package bearer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// The rights of a token are cached unless they depend on another record or were computed for another fhirUser.
func TestHolderIsCached(t *testing.T) {
	t.Parallel()
	e := &scopeEnforcer{&enforce.Enforcer{Base: "/fhir", TypeRules: enforce.NewTypeRules(nil)}}
	empty := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNotFound)
		return nil
	})
	for _, tt := range []struct {
		name            string
		before, now     guard.Token
		cached, mayRead bool
		mayReadAsBefore bool
	}{
		{"the same", guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, true, true, true},
		{"no practitioner any more", guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, guard.Token{Scope: "user/*.rs"}, false, false, true},
		{"a related person", guard.Token{Scope: "user/*.rs", FHIRUser: "RelatedPerson/1"}, guard.Token{Scope: "user/*.rs", FHIRUser: "RelatedPerson/1"}, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/fhir/Patient/1", nil)
			memo := new(guard.Memo)
			tt.before.Memo, tt.now.Memo = memo, memo
			first, err := e.loadHolder(r, empty, &tt.before)
			if err != nil || (len(first.rights.GrantsFor("Patient", smart.Read)) > 0) != tt.mayReadAsBefore {
				t.Fatalf("%+v, %v", first, err)
			}
			second, err := e.loadHolder(r, empty, &tt.now)
			if err != nil || (len(second.rights.GrantsFor("Patient", smart.Read)) > 0) != tt.mayRead || (first == second) != tt.cached {
				t.Errorf("%+v, %v, cached: %t", second, err, first == second)
			}
		})
	}
}

// A search parameter that cannot be evaluated is an error, or a warning if it is in a package.
func TestSearchParametersThatCannotBeJudged(t *testing.T) {
	t.Parallel()
	const odd = `{"resourceType":"SearchParameter","url":"http://x/odd","code":"odd","base":["Patient"],"type":"string","expression":"Patient.generalPractitioner.resolve().name"}`
	file := filepath.Join(t.TempDir(), "odd.json")
	gatewaytest.ReplaceFile(t, file, odd)
	damaged := filepath.Join(t.TempDir(), "damaged.tgz")
	gatewaytest.ReplaceFile(t, damaged, "no package")
	var log bytes.Buffer
	for name, tt := range map[string]struct {
		enforcement Enforcement
		want        string
	}{
		"file":           {Enforcement{SearchParameterFiles: []string{file}}, "http://x/odd: odd of Patient: unsupported FHIRPath expression: unsupported function resolve()"},
		"no file":        {Enforcement{SearchParameterFiles: []string{"../../fhirapp/testdata/none*.json"}}, "search_parameters ../../fhirapp/testdata/none*.json: file does not exist"},
		"no such format": {Enforcement{SearchParameterFiles: []string{"doc.go"}}, "unsupported file extension: use .json or .tgz"},
		"no JSON":        {Enforcement{SearchParameterFiles: []string{damaged}}, "gzip"},
		"package":        {Enforcement{SearchParameterFiles: []string{packageWith(t, "package", odd)}}, ""},
		"an example":     {Enforcement{SearchParameterFiles: []string{packageWith(t, "package/example", odd)}}, ""},
	} {
		set, err := newSearchParameters(tt.enforcement.SearchParameterFiles, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := set.Lookup("Patient", "odd"); ok {
			t.Errorf("%s: it is known", name)
		}
	}
	if got := strings.Count(log.String(), "http://x/odd: odd of Patient"); got != 1 {
		t.Errorf("%d warnings: %s", got, log.String())
	}
}

// packageWith returns the path of a FHIR package that contains a resource in the given folder.
func packageWith(t *testing.T, folder, resource string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package.json": `{"name":"x"}`, "one.json": resource} {
		_ = archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg})
		_, _ = archive.Write([]byte(text))
	}
	_, _ = archive.Close(), zipped.Close()
	name := filepath.Join(t.TempDir(), "x.tgz")
	gatewaytest.ReplaceFile(t, name, packed.String())
	return name
}

// The search parameters of US Core and CARIN can be read in all supported file formats.
func TestSearchParametersOfFile(t *testing.T) {
	t.Parallel()
	const bundle = "../../fhirapp/testdata/searchparameters.json"
	for form, file := range map[string]string{
		"file": bundle, "pattern": "../../fhirapp/testdata/search*.json", "package": packageWith(t, "package", gatewaytest.ReadFile(t, bundle)),
	} {
		set, err := newSearchParameters([]string{file}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for resourceType, name := range map[string]string{
			"CareTeam": "role", "ExplanationOfBenefit": "service-date", "Condition": "asserted-date", "Patient": "race",
			"Encounter": "discharge-disposition", "Goal": "description",
		} {
			if p, ok := set.Lookup(resourceType, name); !ok || !p.IsSiteDefined || len(p.Paths) == 0 {
				t.Errorf("%s: %s?%s is not known", form, resourceType, name)
			}
		}
	}
}

// The memory metrics report the handler with the highest usage until it is cleaned up.
func TestMemoryMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(memoryMetrics)
	check := func(wants ...float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
		}
		if len(wants) == 0 && len(got) > 0 || len(wants) > 0 && (got["caddy_fhir_bearer_memory_bytes"] != wants[0] || got["caddy_fhir_bearer_max_memory_bytes"] != wants[1]) {
			t.Errorf("%v, want %v", got, wants)
		}
	}
	check()
	var handlers []*Bearer
	for _, used := range []int64{30 << 20, 50 << 20, 10 << 20} {
		memory, err := enforce.NewMemory(256<<20, enforce.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		share := memory.Share()
		if err := share.Grow(t.Context(), used, used); err != nil {
			t.Fatal(err)
		}
		defer share.Release()
		h := &Bearer{gate: &gate{enforcement: &scopeEnforcer{&enforce.Enforcer{Memory: memory}}}}
		activeBearers.Store(h, nil)
		defer activeBearers.Delete(h)
		handlers = append(handlers, h)
	}
	check(50<<20, 256<<20)
	activeBearers.Delete(handlers[1])
	check(30<<20, 256<<20)
}
