// Package tokenclaim finds claims that a site names, also nested ones, in what another server says of a person.
package tokenclaim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// MaxNames is how many further claims a site may name in one place.
const MaxNames = 20

var claimName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Check refuses what cannot be our name of a claim, or of theirs.
func Check(ours, theirs string) error {
	if !claimName.MatchString(ours) {
		return fmt.Errorf("claim %q: our name may have 64 letters, digits, hyphens and underscores", ours)
	}
	if theirs == "" || len(theirs) > 256 {
		return fmt.Errorf("claim %s: their name may have 256 characters", ours)
	}
	return nil
}

// CheckAll refuses names that [Check] refuses, and too many.
func CheckAll(names map[string]string) error {
	if len(names) > MaxNames {
		return fmt.Errorf("more than %d claims named", MaxNames)
	}
	for ours, theirs := range names {
		if err := Check(ours, theirs); err != nil {
			return err
		}
	}
	return nil
}

// Find returns a claim by its name or, where none has that name, by a path of nested ones, such as realm_access.roles.
// Names may have dots themselves.
func Find(claims map[string]any, path string) any {
	if value, ok := claims[path]; ok {
		return value
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if nested, ok := claims[path[:i]].(map[string]any); ok {
			if value := Find(nested, path[i+1:]); value != nil {
				return value
			}
		}
	}
	return nil
}

// List reads a text, a number, a truth value, or a list of texts. Anything else is as good as missing.
func List(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case json.Number:
		return []string{v.String()}
	case bool:
		return []string{strconv.FormatBool(v)}
	case []any:
		var list []string
		for _, w := range v {
			if text, ok := w.(string); ok {
				list = append(list, text)
			}
		}
		return list
	}
	return nil
}

// Names are the claims of a token that a site names. Nil names none.
type Names struct {
	theirs map[string]string // by our names
	text   string
}

// Groups is the claim that has the groups, unless a site names another one so.
const Groups = "groups"

// NewNames names claims, theirs by ours, and [Groups].
func NewNames(theirs map[string]string) *Names {
	n := &Names{theirs: map[string]string{Groups: Groups}}
	maps.Copy(n.theirs, theirs)
	for _, ours := range slices.Sorted(maps.Keys(n.theirs)) {
		n.text += strconv.Quote(ours) + strconv.Quote(n.theirs[ours])
	}
	return n
}

// String differs for names that differ.
func (n *Names) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// Read takes the named claims from an object that is known to have one reading. One that is missing has no values.
func (n *Names) Read(object []byte) (map[string][]string, error) {
	if n == nil {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var claims map[string]any
	if err := decoder.Decode(&claims); err != nil {
		return nil, fmt.Errorf("reading claims: %w", err)
	}
	values := make(map[string][]string, len(n.theirs))
	for ours, theirs := range n.theirs {
		values[ours] = List(Find(claims, theirs))
	}
	return values, nil
}
