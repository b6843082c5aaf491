package brands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// MaxSize is how large a Bundle may be, in bytes: enough for thousands of brands, few enough
// to be kept in memory.
const MaxSize = 16 << 20

// Bundle is a User Access Brands Bundle that keeps the rules of its profiles.
type Bundle struct {
	content   []byte
	tag       string // the ETag
	timestamp time.Time
	primary   *smart.Identifier
}

// Primary returns the identifier of the brand that stands for this server, or nil if the
// only one has none.
func (b *Bundle) Primary() *smart.Identifier { return b.primary }

// Read returns the Bundle of a JSON text. Its errors name what is wrong, and where. The
// primary brand is the one with the identifier given here or, if that is nil, the one to
// which the Endpoint of fhirBase belongs.
func Read(content []byte, fhirBase string, primary *smart.Identifier) (*Bundle, error) {
	if len(content) > MaxSize {
		return nil, fmt.Errorf("a Bundle of %d bytes is too large: at most %d", len(content), MaxSize)
	}
	root, found, err := parse(content)
	if err != nil {
		return nil, err
	}
	resources := checkBundle(root)
	if err := found.err(); err != nil {
		return nil, err
	}
	chosen, err := choosePrimary(resources, fhirBase, primary)
	return &Bundle{content: content, tag: tagOf(content), timestamp: root.member("timestamp").instant(), primary: chosen}, err
}

// CheckJSON returns an error if a text is not JSON, or would not mean the same to every
// reader, such as one with a name twice.
func CheckJSON(text []byte) error { return rawjson.Check(text) }

// parse refuses what two readers could understand differently, such as a name twice.
func parse(content []byte) (element, *problems, error) {
	found := new(problems)
	root := element{path: "Bundle", found: found}
	if err := CheckJSON(content); err != nil {
		return root, found, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&root.value); err != nil {
		return root, found, err
	}
	if _, ok := root.value.(map[string]any); !ok {
		return root, found, errors.New("a Bundle is a JSON object")
	}
	return root, found, nil
}

// checkBundle checks the rules of User Access Brands Bundle, and returns its resources.
func checkBundle(root element) members {
	root.walk()
	root.member("resourceType").oneOf("Bundle")
	root.member("type").oneOf("collection")
	root.member("timestamp").instant()
	if meta := root.member("meta"); meta.exists() {
		meta.member("lastUpdated").instant()
	}
	if total := root.member("total"); total.exists() {
		total.fail("is not for a collection (bdl-1)")
	}
	return checkEntries(root)
}

func checkEntries(root element) members {
	resources := members{}
	for _, entry := range root.each("entry") {
		resources.addEntry(entry)
	}
	brands := resources.all("Organization")
	if len(brands) == 0 {
		root.member("entry").fail("holds no brand, which is an Organization")
	}
	for _, brand := range brands {
		checkMeta(brand)
		checkBrand(brand, resources)
	}
	for _, endpoint := range resources.all("Endpoint") {
		checkMeta(endpoint)
		checkEndpoint(endpoint, resources)
	}
	return resources
}

func checkMeta(resource element) {
	if updated := resource.member("meta").member("lastUpdated"); updated.exists() {
		updated.instant()
	}
}
