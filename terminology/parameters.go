package terminology

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxParameterLength is how long a parameter may be, in bytes.
const maxParameterLength = 8 << 10

// choice is a boolean parameter, which may be absent.
type choice uint8

const (
	unset choice = iota
	no
	yes
)

// parameters are those of ValueSet/$expand: of R4, of R5, and of the HL7 terminology ecosystem.
type parameters struct {
	library *Library // that the request is answered from

	id      string // of the value set, at instance level
	url     string // may be url|version
	version string
	context string

	filter        *string
	offset, count *int
	date          string

	includeDesignations, includeDefinition, activeOnly     choice
	excludeNested, excludeNotForUI, excludePostCoordinated choice

	designations    []string
	properties      []string
	displayLanguage string
	languageHeader  string // Accept-Language
	rules           versionRules
	supplements     []string

	valueSet  jsontext.Value
	resources []jsontext.Value // tx-resource
	cacheID   string
	cacheKey  [sha256.Size]byte
	cached    bool // there is a cacheKey

	budget *budget
	subset subset
	given  []input // as they were sent
	plain  bool    // a GET: a list, unless a tree is asked for, and always an offset, as interface.md has it
}

// repeated are the parameters of $expand that may occur more than once; of the others that are known, two
// are an error, since nothing says which of them would count.
var repeated = []string{
	"designation", "property", "useSupplement", "tx-resource", "exclude-system", "system-version",
	"check-system-version", "force-system-version", "default-valueset-version", "_elements",
}

// parseParameters makes parameters of inputs. Unknown ones are ignored, as R4 has it for operations.
func parseParameters(inputs []input) (*parameters, error) {
	p := &parameters{given: inputs}
	for i := range inputs {
		in := &inputs[i]
		if len(in.value) > maxParameterLength {
			return nil, badRequest("too-long", "a parameter may be at most %d bytes long", maxParameterLength)
		}
		if !isText(in.value) {
			return nil, badRequest("invalid", "a parameter holds a character that no FHIR string has")
		}
		known, err := p.set(in)
		if err != nil {
			return nil, err
		}
		if known && i > 0 && !slices.Contains(repeated, in.name) &&
			slices.ContainsFunc(inputs[:i], func(other input) bool { return other.name == in.name }) {
			return nil, badRequest("invalid", "the parameter %s may be given only once", in.name)
		}
	}
	return p, nil
}

// isText reports whether a value can be a FHIR string: UTF-8 without control characters but tab, line feed
// and carriage return (R4 §2.24.0.1).
func isText(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	})
}

// set takes over one parameter, and reports whether it is known.
func (p *parameters) set(in *input) (known bool, err error) {
	switch in.name {
	case "url":
		p.url = in.value
	case "valueSet":
		p.valueSet = in.resource
		if in.resource == nil {
			return true, badRequest("invalid", "the parameter valueSet must be a resource, which only a POST can give")
		}
	case "valueSetVersion":
		p.version = in.value
	case "context":
		p.context = in.value
	case "contextDirection":
		return true, checkDirection(in.value)
	case "filter":
		if strings.TrimSpace(in.value) != "" { // as no filter; and FHIR has no empty strings to echo it in
			p.filter = &in.value
		}
	case "date":
		p.date = in.value
	case "offset":
		p.offset, err = number(in)
	case "count":
		p.count, err = number(in)
	case "displayLanguage":
		p.displayLanguage, err = in.value, checkLanguage(in.value)
	case "cache-id":
		p.cacheID = in.value
	default:
		if p.setRepeated(in) {
			return true, nil
		}
		if known, err = p.setChoice(in); known || err != nil {
			return known, err
		}
		if known, err = p.subset.set(in); known || err != nil {
			return known, err
		}
		return p.rules.set(in)
	}
	return true, err
}

// setRepeated takes over one parameter that may occur more than once, and reports whether it is one.
func (p *parameters) setRepeated(in *input) bool {
	switch in.name {
	case "designation":
		p.designations = append(p.designations, in.value)
	case "property":
		p.properties = append(p.properties, in.value)
	case "useSupplement":
		p.supplements = append(p.supplements, in.value)
	case "tx-resource":
		if in.resource != nil {
			p.resources = append(p.resources, in.resource)
		}
	default:
		return false
	}
	return true
}

// setChoice takes over one parameter that is a boolean.
func (p *parameters) setChoice(in *input) (known bool, err error) {
	var c *choice
	switch in.name {
	case "includeDesignations":
		c = &p.includeDesignations
	case "includeDefinition":
		c = &p.includeDefinition
	case "activeOnly":
		c = &p.activeOnly
	case "excludeNested":
		c = &p.excludeNested
	case "excludeNotForUI":
		c = &p.excludeNotForUI
	case "excludePostCoordinated":
		c = &p.excludePostCoordinated
	case "versionsMatch":
		c = &p.rules.versionsMatch
	default:
		return false, nil
	}
	switch in.value {
	case "true":
		*c = yes
	case "false":
		*c = no
	default:
		return true, badRequest("invalid", "the parameter %s must be true or false", in.name)
	}
	return true, nil
}

// checkDirection checks contextDirection. Both directions have the same answer: the codes that are bound
// are those to choose from and those to be met with alike.
func checkDirection(value string) error {
	if value != "incoming" && value != "outgoing" {
		return badRequest("invalid", "the parameter contextDirection must be incoming or outgoing")
	}
	return nil
}

// number reads a parameter that is a whole number from 0 up.
func number(in *input) (*int, error) {
	// Bounded by 32 bits as FHIR's integer is, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(in.value, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, badRequest("invalid", "the parameter %s is too large", in.name)
	}
	if err != nil {
		return nil, badRequest("invalid", "the parameter %s must be a whole number from 0 up", in.name)
	}
	result := int(n)
	return &result, nil
}

// paged reports whether only a part of the expansion was asked for.
func (p *parameters) paged() bool { return p.offset != nil || p.count != nil }

// versionRules are the parameters that choose versions of code systems and value sets.
type versionRules struct {
	preferred, required, forced []string // system-version, check-system-version, force-system-version
	valueSets                   []string // default-valueset-version
	excluded                    []string // exclude-system
	versionsMatch               choice   // codes of different versions of a code system are the same code
}

// set takes over one parameter, and reports whether it is one of these rules.
func (v *versionRules) set(in *input) (known bool, err error) {
	var list *[]string
	switch in.name {
	case "system-version":
		list = &v.preferred
	case "check-system-version":
		list = &v.required
	case "force-system-version":
		list = &v.forced
	case "default-valueset-version":
		list = &v.valueSets
	case "exclude-system":
		list = &v.excluded
	default:
		return false, nil
	}
	if url, version := splitCanonical(in.value); url == "" || version == "" && list != &v.excluded {
		return true, badRequest("invalid", "the parameter %s must be system|version", in.name)
	}
	*list = append(*list, in.value)
	return true, nil
}

// none reports whether there are no rules.
func (v *versionRules) none() bool {
	return v.preferred == nil && v.required == nil && v.forced == nil && v.valueSets == nil && v.excluded == nil && v.versionsMatch == unset
}

// cost is how many steps it takes to look for a code system or value set among the rules.
func (v *versionRules) cost() (steps int) {
	if v.none() {
		return 0
	}
	for _, list := range [][]string{v.preferred, v.required, v.forced, v.valueSets, v.excluded} {
		for _, rule := range list {
			steps += 1 + len(rule)/plainBytes
		}
	}
	return steps
}

// key tells rules from others, for a cache.
func (v *versionRules) key() string {
	if v.none() {
		return ""
	}
	lists := [][]string{v.preferred, v.required, v.forced, v.valueSets, v.excluded}
	var key strings.Builder
	for _, list := range lists {
		key.WriteString(strings.Join(list, "\x01"))
		key.WriteByte(0)
	}
	key.WriteByte('0' + byte(v.versionsMatch))
	return key.String()
}

// versionFor returns the version that a list has for a url, and the member of the list.
func versionFor(list []string, url string) (version, rule string) {
	for _, rule := range list {
		if u, version, ok := strings.Cut(rule, "|"); ok && u == url {
			return version, rule
		}
	}
	return "", ""
}
