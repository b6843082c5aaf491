package search

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Searches are the searches that one request needs.
type Searches struct {
	Server         *server.Server    // asks the FHIR server
	Judge          *judge.Judge      // judges what it answers
	At             message.Addresses // names what it holds as clients know it
	Pages          paging.Pages      // seals links to pages
	Parameters     searchparam.Set   // are the search parameters
	Shared         access.Shared     // are the rules of types outside of the compartment
	InCompartments bool              // the server finds a patient's resources by Patient/id/Type
	Requests       int               // to the server that the request may cause
	Limit          int64             // size in bytes up to which an answer is judged
}

// plan is what is done for a search: what the client asked for, and the branches that answer it.
type plan struct {
	x          *Searches
	find       finder
	c          message.Call // the client's
	i          interaction.Interaction
	branches   []branch
	parameters []smart.Parameter // that go to the FHIR server with every branch
	asked      []smart.Parameter // the client's, as far as they are heeded
	ignored    []string          // names of unknown parameters, with Prefer: handling=lenient
	order      []sortKey         // by which the branches' results are merged
	count      int               // _count; 0 if the client did not say
	size       int               // matches of a page; 0 leaves it to the FHIR server
	onlyTotal  bool              // _summary=count or _count=0
	accurate   bool              // _total=accurate
	chained    bool              // a chain was looked up by searches of our own
	nothing    bool              // a chain has found nothing, so neither does the search
	judged     bool              // entries are looked at one by one
	includes   includes          // how entries other than matches may come
	referring  []chain           // what comes along because it refers to matches, found by searches of our own
	ruled      bool              // policies judge each match, so the server's total would reveal denied matches
	grants     map[granted][]access.Grant
}

// finder calls a function with each resource of a type that a search of the client's own by one parameter would find.
type finder func(ctx context.Context, resourceType string, by smart.Parameter, do func(*message.Entry) error) error

// sortKey is one of the parameters of _sort.
type sortKey struct {
	name       string
	descending bool
}

// trust is how much of a search is left to the FHIR server.
type trust uint8

const (
	// bound: some scope is about a part of what could be found.
	bound trust = iota
	// whole: the scopes are about all resources of the types, but not about all types.
	whole
	// open: the scopes are about all resources of all types.
	open
)

// searchRules say which parameters of a search go on to the FHIR server. Unless it is open, none may that could tell of
// resources that are not covered: by what is found, how much, or in which order.
//
// R4's parameters of a type compare what is in the resource itself, which the client may see anyway, so they go on.
type searchRules struct {
	x            *Searches
	s            *plan
	resourceType string   // that the search is about; empty or [smart.AnyType] if it is about several
	types        []string // that the branches are about
	trust        trust
}

// granted is what grants are looked up by.
type granted struct {
	resourceType string
	permission   smart.Permission
}

// grantsFor are the rights' grants, looked up once.
func (s *plan) grantsFor(resourceType string, p smart.Permission) []access.Grant {
	key := granted{resourceType, p}
	grants, ok := s.grants[key]
	if !ok {
		grants = s.x.Judge.Rights().For(resourceType, p)
		if s.grants == nil {
			s.grants = map[granted][]access.Grant{}
		}
		s.grants[key] = grants
	}
	return grants
}

const (
	// DefaultCount is how many matches a page has that is judged, if the client does not say; maxCount is the most.
	DefaultCount = 50
	maxCount     = 1000
	// minMerged is how long the pages of branches are at least, many of whose matches other branches may have found.
	minMerged = 20
)

// setJudged says whether entries are looked at one by one. A page of what is not is as long as the FHIR server has it.
func (s *plan) setJudged(judged bool) {
	s.judged, s.size = judged, 0
	if judged {
		s.size = min(cmp.Or(s.count, DefaultCount), maxCount)
	}
}

// call is a search where a branch searches, for so many matches, or as many as the FHIR server likes. One that came in a
// body goes on in a body, which keeps it out of logs.
func (b branch) call(method string, parameters []smart.Parameter, size int) message.Call {
	path := b.resourceType
	switch {
	case b.patient != "":
		path = "Patient/" + b.patient + "/" + path
	case b.within != (interaction.Reference{}):
		path = b.within.String() + "/" + path
	}
	if size > 0 {
		parameters = append(slices.Clip(parameters), smart.Parameter{Name: "_count", Value: strconv.Itoa(size)})
	}
	text := smart.EncodeParameters(parameters)
	if method != http.MethodPost {
		return message.Get(path, text)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return message.Call{Method: http.MethodPost, Path: strings.TrimPrefix(path+"/_search", "/"), Header: header, Body: []byte(text)}
}

// said is what the client has sent, which the FHIR server may repeat.
func (s *plan) said() message.Said { return message.Said{}.Parameters(s.i.Parameters) }

// isOverAll reports whether the client has named no types, so that the FHIR server need not have them all.
func (s *plan) isOverAll() bool {
	return (s.i.Type == "" || s.i.Type == smart.AnyType) &&
		!slices.ContainsFunc(s.i.Parameters, func(p smart.Parameter) bool { return p.Name == "_type" })
}

// branch is a search that the FHIR server confines to what some grants cover. A search that no single one can confine
// becomes several, whose results are joined.
type branch struct {
	resourceType string
	patient      string                // the compartment to which the path confines; empty for none
	member       string                // the patient to whose compartment path or parameters confine; empty for none
	within       interaction.Reference // the compartment that the client asked for, if the path is to say so
	confining    []smart.Parameter     // come on top of the client's
	whole        bool                  // all that it could find is covered
	byRule       bool                  // policies decide whether its matches may be seen
}

// chain is the first link of a parameter that looks at other resources, and what it asks of them.
type chain struct {
	by      searchparam.Parameter // the reference
	types   []string              // that are looked at
	rest    smart.Parameter       // what is asked of them
	reverse bool                  // _has: they refer to what is searched for
}

// includes are the ways by which other entries may come along with matches.
type includes struct {
	include    bool // named by a match
	revinclude bool // naming a match
	iterate    bool // and so on from there
}

// add notes what a parameter has come along, if it has anything.
func (i *includes) add(name, modifier string) {
	switch name {
	case "_include":
		i.include = true
	case "_revinclude":
		i.revinclude = true
	default:
		return
	}
	i.iterate = i.iterate || modifier != ""
}

// less reports whether an entry comes before another one. What has no value comes last, as on HAPI's server.
func (s *plan) less(a, b *message.Entry) bool {
	for i, key := range s.order {
		x, y := s.rank(a, i), s.rank(b, i)
		switch {
		case x.Has != y.Has:
			return x.Has
		case !x.Has:
			continue
		}
		if order := x.Compare(y); order != 0 {
			return order < 0 != key.descending
		}
	}
	return false
}

// rank is where an entry stands by a key, worked out once.
func (s *plan) rank(e *message.Entry, key int) searchparam.Rank {
	if e.Ranks == nil {
		e.Ranks = make([]searchparam.Rank, len(s.order))
		for i, k := range s.order {
			if p, ok := s.x.Parameters.Lookup(e.Parsed.Type, k.name); ok {
				e.Ranks[i] = p.Rank(e.Parsed, k.descending)
			}
		}
	}
	return e.Ranks[key]
}

const (
	usualEntries = 50   // of a page
	mostEntries  = 1000 // of a list that is kept
)

// entryLists are lists of entries, of which a few are kept, and no long ones.
var entryLists = sync.Pool{New: func() any { return new([]message.Entry) }}

// newEntries is an empty list with room for the entries of the usual page.
func newEntries() []message.Entry {
	return slices.Grow(*entryLists.Get().(*[]message.Entry), usualEntries)
}
