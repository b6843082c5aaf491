package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// TestReader checks that resources that were read one after the other say what each says by itself, however many members
// they have.
func TestReader(t *testing.T) {
	t.Parallel()
	var texts []string
	for n := range 100 {
		var b strings.Builder
		fmt.Fprintf(&b, `{"resourceType":"%s","id":"%d","meta":{"versionId":"v%[2]d"}`, []string{"Patient", "Patient", "Group"}[n%3], n)
		for m := range n * n % 60 {
			fmt.Fprintf(&b, `,"element%d":[%d,"%d"]`, m, n, m)
		}
		texts = append(texts, b.String()+"}")
	}
	text := []byte("[" + strings.Join(texts, " , ") + "]")
	for n, r := range readAll(t, text, texts) {
		alone, err := Parse([]byte(texts[n]))
		if err != nil {
			t.Fatal(err)
		}
		if r.Type != alone.Type || r.ID != alone.ID || r.VersionID != alone.VersionID {
			t.Errorf("%s/%s version %s: want that of %s", r.Type, r.ID, r.VersionID, texts[n])
		}
		for m := range 61 {
			name := fmt.Sprintf("element%d", m)
			got, ok := r.Member(name)
			if want, known := alone.Member(name); ok != known || string(got) != string(want) {
				t.Errorf("%s of %s: %s", name, texts[n], got)
			}
		}
	}
}

func readAll(t *testing.T, text []byte, parts []string) []Resource {
	t.Helper()
	c := rawjson.NewCursor(text)
	reader := NewReader(c, text)
	var all []Resource
	err := c.Array(func() error {
		r, part, err := reader.Read()
		if err == nil && string(part) != parts[len(all)] {
			t.Errorf("part %s", part)
		}
		all = append(all, r)
		return err
	})
	if err != nil || len(all) != len(parts) {
		t.Fatal(len(all), err)
	}
	return all
}

// TestReaderStops checks that nothing follows what is no resource.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	text := []byte(`[{"id":"a"},{"resourceType":"Patient"}]`)
	c := rawjson.NewCursor(text)
	reader := NewReader(c, text)
	read := 0
	if err := c.Array(func() error { read++; _, _, err := reader.Read(); return err }); err == nil || read != 1 {
		t.Errorf("%d were read: %v", read, err)
	}
}
