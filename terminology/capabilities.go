package terminology

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// expandParameters are the $expand parameters listed in the TerminologyCapabilities resource.
var expandParameters = []string{
	"activeOnly", "cache-id", "check-system-version", "context", "contextDirection", "count", "date", "default-valueset-version", "designation",
	"displayLanguage", "exclude-system", "excludeNested", "excludeNotForUI", "excludePostCoordinated", "filter",
	"force-system-version", "includeDefinition", "includeDesignations", "offset", "property", "system-version", "tx-resource",
	"url", "useSupplement", "valueSet", "valueSetVersion", "versionsMatch",
}

// Capabilities is the content of a TerminologyCapabilities resource.
type Capabilities struct {
	// Date is when the library was loaded.
	Date time.Time

	// CodeSystems are the loaded code systems with concepts.
	CodeSystems []CodeSystemCapability

	// Parameters are the supported parameters of $expand.
	Parameters []string

	// Operations are the JSON members of the other operations, each without the enclosing braces.
	Operations []string

	// Copyright contains the notices that the licenses of built-in code systems require.
	Copyright string
}

// CodeSystemCapability is TerminologyCapabilities.codeSystem.
type CodeSystemCapability struct {
	// URI is the URL of the code system.
	URI string

	// Versions are the loaded versions; "" stands for a code system without a version.
	Versions []string

	// DefaultVersion is the version for references without a version.
	DefaultVersion string

	// Compositional reports whether the codes are expressions of a grammar.
	Compositional bool

	// Subsumption reports whether $subsumes is supported.
	Subsumption bool
}

// Capabilities returns the loaded code systems and their versions, and the supported parameters of $expand.
func (l *Library) Capabilities() *Capabilities {
	c := &Capabilities{Date: l.set.Loaded, Parameters: slices.Clone(expandParameters)}
	for i := range l.set.Systems.List {
		if system := newCapability(l.set, &l.set.Systems.List[i]); len(system.Versions) > 0 {
			c.CodeSystems = append(c.CodeSystems, system)
		}
	}
	var notices []string
	for _, cs := range l.set.Systems.CodeSystems {
		if cs.Copyright != "" {
			notices = append(notices, cs.Name+": "+cs.Copyright)
		}
	}
	c.Copyright = strings.Join(notices, "\n\n")
	return c
}

func newCapability(t *definitions.Set, s *definitions.System) CodeSystemCapability {
	c := CodeSystemCapability{URI: s.URL, Subsumption: true}
	for _, index := range s.Versions {
		if cs := t.Systems.CodeSystems[index]; cs.Content.HasConcepts() || cs.Content == definitions.ContentLookupOnly {
			c.Versions = append(c.Versions, cs.Version)
			c.Compositional = cs.Concepts.List == nil && cs.Content.HasConcepts()
			c.Subsumption = c.Subsumption && !cs.NotSubsuming && cs.Concepts.List != nil && cs.Content.HasConcepts()
		}
	}
	if s.Current != definitions.None {
		c.DefaultVersion = t.Systems.CodeSystems[s.Current].Version
	}
	slices.Sort(c.Versions)
	return c
}

// AppendJSON appends the TerminologyCapabilities resource.
func (c *Capabilities) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"resourceType":"TerminologyCapabilities","version":"1","name":"TerminologyService","title":"Terminology service",`+
		`"status":"active","date":"`...)
	dst = append(c.Date.AppendFormat(dst, time.RFC3339), `","kind":"instance"`...)
	dst = fhirjson.AppendMember(dst, "copyright", c.Copyright)
	list := fhirjson.Array{Name: "codeSystem"}
	for i := range c.CodeSystems {
		dst = c.CodeSystems[i].append(list.Next(dst))
	}
	dst = append(list.End(dst), `,"expansion":{"hierarchical":true,"paging":true`...)
	parameters := fhirjson.Array{Name: "parameter"}
	for _, name := range c.Parameters {
		dst = append(fhirjson.AppendString(append(parameters.Next(dst), `{"name":`...), name), '}')
	}
	dst = fhirjson.AppendMember(parameters.End(dst), "textFilter", textindex.Rule)
	dst = append(dst, `},"codeSearch":"all"`...)
	for _, members := range c.Operations {
		dst = append(append(dst, ','), members...)
	}
	return append(dst, '}')
}

func (c *CodeSystemCapability) append(dst []byte) []byte {
	dst = fhirjson.AppendString(append(dst, `{"uri":`...), c.URI)
	versions := fhirjson.Array{Name: "version"}
	for _, version := range c.Versions {
		dst = append(versions.Next(dst), '{')
		if version != "" {
			dst = append(fhirjson.AppendString(append(dst, `"code":`...), version), ',')
		}
		dst = strconv.AppendBool(append(dst, `"isDefault":`...), version == c.DefaultVersion)
		if c.Compositional {
			dst = append(dst, `,"compositional":true`...)
		}
		dst = append(dst, '}')
	}
	dst = strconv.AppendBool(append(versions.End(dst), `,"subsumption":`...), c.Subsumption)
	return append(dst, '}')
}
