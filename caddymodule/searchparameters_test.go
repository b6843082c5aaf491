package caddymodule

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// What US Core and CARIN define can be searched by, in the forms in which a site may give it.
func TestSearchParameters(t *testing.T) {
	t.Parallel()
	const file = "testdata/searchparameters.json"
	for name, option := range map[string]string{
		"file":    "search_parameters " + file,
		"pattern": "search_parameters testdata/search*.json",
		"package": "search_parameters " + packageOf(t, "package", file),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, guarding(option)...)
			request := demoRequest()
			request.Set("scope", "user/CareTeam.rs")
			token := g.tokenOf(request)
			for path, want := range map[string]int{"CareTeam?role=doctor": http.StatusOK, "CareTeam?rule=doctor": http.StatusBadRequest} {
				r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+path, nil)
				r.Header.Set("Authorization", "Bearer "+token)
				if response := g.Send(r); response.StatusCode != want {
					t.Errorf("%s: status %d, want %d", path, response.StatusCode, want)
				}
			}
		})
	}
}

// packageOf is a FHIR package with the resources of a Bundle, or one, in a folder.
func packageOf(t *testing.T, folder, file string) string {
	t.Helper()
	var bundle struct {
		Entry []struct{ Resource json.RawMessage }
	}
	text := []byte(fileText(t, file))
	if err := json.Unmarshal(text, &bundle); err != nil {
		t.Fatal(err)
	}
	resources := map[string][]byte{"package.json": []byte(`{"name":"x"}`), "one.json": text}
	for i, e := range bundle.Entry {
		resources[string(rune('a'+i))+".json"] = e.Resource
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range resources {
		_ = archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg})
		_, _ = archive.Write(text)
	}
	_, _ = archive.Close(), zipped.Close()
	name := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(name, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
