package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

// cachedPackages returns Packages that have a package with the given files in their cache.
func cachedPackages(t *testing.T, folder string, files map[string]string) generate.Packages {
	t.Helper()
	p := generate.Packages{Folder: t.TempDir()}
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	w := tar.NewWriter(zipped)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	zipped.Close()
	if err := os.Mkdir(filepath.Join(p.Folder, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Folder, folder, "package.tgz"), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// readConcepts returns the concepts of the table that read builds.
func readConcepts(t *testing.T, p generate.Packages, read func(generate.Packages) (generate.CodeSystem, error)) string {
	t.Helper()
	folder := t.TempDir()
	if err := (generate.Readers{"table.json.zst": read}).Write(p, folder); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(filepath.Join(folder, "table.json.zst"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := r.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Concept json.RawMessage }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	return string(table.Concept)
}

func TestSubdivisions(t *testing.T) {
	p := cachedPackages(t, "iso-3166-4-4-0", map[string]string{
		"2.js": "/** @property {string} code (example: `'GB'`) */\nexport const x = [\n {\n code: 'GB-NIR',\n name: 'Northern Ireland',\n parent: 'GB'\n },\n" +
			" {\n code: 'GB-BFS',\n name: \"Belfast's\",\n parent: 'GB-NIR'\n }\n]",
		"3.js": "[{ alpha4: 'AIDJ', from: { alpha2: 'AI', name: 'French Afars and Issas' }, to: [{ name: 'Djibouti' }] },\n{ alpha4: 'BUMM', from: { name: \"Burma\" }, to: [] }]",
	})
	if got, want := readConcepts(t, p, subdivisions), `[{"code":"GB-NIR","display":"Northern Ireland","concept":[{"code":"GB-BFS","display":"Belfast's"}]}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := readConcepts(t, p, formerCountries), `[{"code":"AIDJ","display":"French Afars and Issas"},{"code":"BUMM","display":"Burma"}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := (generate.Readers{"countries.json.zst": countries}).Write(p, t.TempDir()); err == nil {
		t.Error("no error for a file that the package lacks")
	}
}

func TestUserAssigned(t *testing.T) {
	for kind, want := range map[string]int{"alpha2": 42, "alpha3": 42 * 26, "numeric": 100} {
		concepts := userAssignedCodes(kind)
		codes := make(map[string]bool)
		for _, c := range concepts {
			codes[c.Code] = true
		}
		if len(concepts) != want || len(codes) != want {
			t.Errorf("%s: %d codes, %d of them different, want %d", kind, len(concepts), len(codes), want)
		}
	}
	has := func(kind, code string) bool {
		return slices.ContainsFunc(userAssignedCodes(kind), func(c *generate.Concept) bool { return c.Code == code })
	}
	if !has("alpha2", "QM") || !has("alpha2", "XA") || !has("alpha3", "ZZZ") || has("alpha2", "QL") || has("alpha3", "AB") || !has("numeric", "900") {
		t.Error("not those of the standard")
	}
}
