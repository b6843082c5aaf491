package sample

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Limits of a [Store]. They include all versions, because versions are stored until the process exits.
const (
	MaxVersions = 20_000
	MaxBytes    = 64 << 20
)

// Store contains resources and all their versions. It is safe for concurrent use.
type Store struct {
	mu         sync.RWMutex
	versions   map[interaction.Reference][]*version // oldest first
	order      map[string][]interaction.Reference   // in order of creation, by type
	undoLog    []interaction.Reference              // the resource of each version, in order of creation
	totalBytes int
	exports    exports
}

// version is a version of a resource. It is immutable.
type version struct {
	resource.Resource
	reference interaction.Reference
	number    int
	method    string // method of the request that created the version
	updatedAt time.Time
	text      []byte // nil if the version marks the resource as deleted
}

// NewStore returns a store that contains the given resources with their ids.
func NewStore(texts ...[]byte) (*Store, error) {
	s := &Store{versions: map[interaction.Reference][]*version{}, order: map[string][]interaction.Reference{}}
	for _, text := range texts {
		if err := s.load(text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// load adds a resource. If its meta is complete, the resource is not changed.
func (s *Store) load(text []byte) error {
	res, err := resource.Parse(text)
	if err != nil {
		return err
	}
	of := interaction.Reference{Type: res.Type, ID: res.ID}
	if !interaction.IsType(of.Type) || of.ID == "" || s.versions[of] != nil {
		return fmt.Errorf("%w: %s", errInvalidRecord, of)
	}
	if at, ok := lastUpdated(res); ok && res.VersionID == "1" {
		return s.add(&version{res, of, 1, http.MethodPost, at, text})
	}
	_, err = s.put(http.MethodPost, of, text)
	return err
}

var errInvalidRecord = errors.New("invalid or duplicate resource")

// lastUpdated returns a resource's meta.lastUpdated.
func lastUpdated(r resource.Resource) (time.Time, bool) {
	meta, ok := r.Member("meta")
	if !ok {
		return time.Time{}, false
	}
	value, _ := resource.Field(meta, "lastUpdated")
	at, err := time.Parse(time.RFC3339, resource.Text(value))
	return at, err == nil
}

// now returns the current time with the precision of FHIR instants (milliseconds).
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Len returns the number of resources that are not deleted.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	count := 0
	for of := range s.versions {
		if _, ok := s.current(of); ok {
			count++
		}
	}
	return count
}

// current returns the latest version of a resource. ok is false if the resource does not exist or is deleted.
func (s *Store) current(of interaction.Reference) (v *version, ok bool) {
	all := s.versions[of]
	if len(all) == 0 {
		return nil, false
	}
	v = all[len(all)-1]
	return v, v.text != nil
}

// put adds a version with the given text. References may be absolute URLs below one of bases, which are the server's URLs.
func (s *Store) put(method string, of interaction.Reference, text []byte, bases ...string) (*version, error) {
	v := &version{reference: of, number: len(s.versions[of]) + 1, method: method, updatedAt: now()}
	text, err := v.addMeta(text)
	if err != nil {
		return nil, err
	}
	if v.Resource, err = resource.Parse(text, bases...); err != nil {
		return nil, err
	}
	v.text = text
	return v, s.add(v)
}

// remove adds a version that marks the resource as deleted.
func (s *Store) remove(of interaction.Reference) error {
	return s.add(&version{reference: of, number: len(s.versions[of]) + 1, method: http.MethodDelete, updatedAt: now()})
}

func (s *Store) add(v *version) error {
	if len(s.undoLog) >= MaxVersions || s.totalBytes+len(v.text) > MaxBytes {
		return ErrFull
	}
	if v.number == 1 {
		s.order[v.reference.Type] = append(s.order[v.reference.Type], v.reference)
	}
	s.versions[v.reference] = append(s.versions[v.reference], v)
	s.undoLog = append(s.undoLog, v.reference)
	s.totalBytes += len(v.text)
	return nil
}

// undo removes all versions after the first count versions.
func (s *Store) undo(count int) {
	for _, of := range slices.Backward(s.undoLog[count:]) {
		all := s.versions[of]
		s.totalBytes -= len(all[len(all)-1].text)
		if s.versions[of] = all[: len(all)-1 : len(all)-1]; len(all) == 1 {
			delete(s.versions, of)
			s.order[of.Type] = s.order[of.Type][:len(s.order[of.Type])-1]
		}
	}
	s.undoLog = s.undoLog[:count]
}

// addMeta returns the text with the id and meta of the version added.
func (v *version) addMeta(text []byte) ([]byte, error) {
	res, err := resource.Parse(text)
	if err != nil {
		return nil, err
	}
	meta, ok := res.Member("meta")
	if !ok {
		meta = []byte("{}")
	}
	lastUpdated, err := json.Marshal(v.updatedAt)
	if err != nil {
		return nil, err
	}
	for _, set := range []struct {
		name  string
		value []byte
	}{{"versionId", quoteJSON(strconv.Itoa(v.number))}, {"lastUpdated", lastUpdated}} {
		if meta, err = rawjson.WithMember(meta, set.name, set.value); err != nil {
			return nil, err
		}
	}
	if text, err = rawjson.WithMember(text, "id", quoteJSON(v.reference.ID)); err != nil {
		return nil, err
	}
	return rawjson.WithMember(text, "meta", meta)
}

// etag returns the version's entity tag.
func (v *version) etag() string { return `W/"` + strconv.Itoa(v.number) + `"` }

// quoteJSON returns the JSON encoding of a string.
func quoteJSON(s string) []byte {
	text, _ := json.Marshal(s) // cannot fail for strings
	return text
}

// newID returns a new random id.
func newID() string { return strings.ToLower(rand.Text()) }

// compressedRecords is the compressed content of records.ndjson, written by go test -run TestRecordsCompressed -update.
//
//go:embed records.ndjson.zst
var compressedRecords []byte

// Records returns the synthetic records: thirty patients, and the people and organizations that care for them. None of them
// exist. References come after their targets. All records have an id and a meta. Codes are from SNOMED CT, ICD-10-CM, LOINC,
// RxNorm, CVX and HL7's own systems; units are from UCUM.
func Records() ([][]byte, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	lines, err := decoder.DecodeAll(compressedRecords, nil)
	return bytes.Split(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n")), err
}
