package terminology

import (
	"cmp"
	"net/http"
)

// Lookup answers [base]/CodeSystem/$lookup, and the same of [base]/CodeSystem/{id}. See [Handler.Expand] for
// what is written and returned.
func (h *Handler) Lookup(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *Library, inputs []input) ([]byte, error) {
		p, l, err := o.concepts(l, inputs)
		if err != nil {
			return nil, err
		}
		c, err := l.Lookup(&o.budget, Lookup{Coding: p.a, Date: p.Date, Supplements: p.Supplements, Properties: p.Properties, Language: p.Language})
		if err != nil {
			return nil, err
		}
		return c.AppendJSON(nil), nil
	})
}

// Subsumes answers [base]/CodeSystem/$subsumes and [base]/CodeSystem/{id}/$subsumes. See [Handler.Expand] for
// what is written and returned.
func (h *Handler) Subsumes(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *Library, inputs []input) ([]byte, error) {
		p, l, err := o.concepts(l, inputs)
		if err != nil {
			return nil, err
		}
		outcome, err := l.Subsumes(&o.budget, p.a, p.b)
		if err != nil {
			return nil, err
		}
		out := newParametersWriter(nil)
		out.text("outcome", "valueCode", outcome)
		return out.end(), nil
	})
}

// concepts reads the parameters of $lookup and $subsumes, and what they bring along.
func (o *operation) concepts(base *Library, inputs []input) (*concepts, *Library, error) {
	p, err := parseConcepts(inputs)
	if err != nil {
		return nil, nil, err
	}
	o.fill(&p.parameters)
	l, err := o.libraryWith(base, &p.parameters)
	if err == nil && p.ID != "" {
		err = l.instance(p.ID, &p.a, &p.b)
	}
	return p, l, err
}

// concepts are the parameters of $lookup and $subsumes.
type concepts struct {
	parameters
	a, b Coding // of $lookup only a
}

// parseConcepts reads the parameters of $lookup and $subsumes. Each concept is given by code, with system and
// version beside it, or by a Coding.
func parseConcepts(inputs []input) (*concepts, error) {
	c := new(concepts)
	if err := c.read(inputs); err != nil {
		return nil, err
	}
	var system Coding // system and version, for the codes
	for i := range inputs {
		switch in := &inputs[i]; in.name {
		case "system":
			system.System = in.value
		case "version":
			system.Version = in.value
		case "code", "codeA":
			c.a.Code = in.value
		case "codeB":
			c.b.Code = in.value
		}
	}
	if err := c.complete(&c.a, &system, "code", "coding"); err != nil {
		return nil, err
	}
	if err := c.complete(&c.a, &system, "codeA", "codingA"); err != nil {
		return nil, err
	}
	return c, c.complete(&c.b, &system, "codeB", "codingB")
}

// complete takes a concept from the parameter that is a Coding, or else gives its code the system.
func (c *concepts) complete(of, system *Coding, code, whole string) error {
	in, ok := find(c.given, whole)
	if !ok {
		of.System, of.Version = cmp.Or(of.System, system.System), cmp.Or(of.Version, system.Version)
		return nil
	}
	if c.sent(code) {
		return badRequest("invalid", "of the parameters %s and %s only one may be given", code, whole)
	}
	var err error
	*of, err = parseCoding(in.complex, whole)
	return err
}
