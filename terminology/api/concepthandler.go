package api

import (
	"cmp"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Lookup answers [base]/CodeSystem/$lookup and [base]/CodeSystem/{id}/$lookup. See [Handler.Expand] for what is written
// and returned.
func (h *Handler) Lookup(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
		p, l, err := o.concepts(l, inputs)
		if err != nil {
			return nil, err
		}
		c, err := l.Lookup(&o.budget, terminology.Lookup{Coding: p.a, Date: p.common.Date, Supplements: p.common.Supplements, Properties: p.common.Properties, Language: p.common.Language})
		if err != nil {
			return nil, err
		}
		return o.orProvisional(c.AppendJSON(nil), c.Missing)
	})
}

// Subsumes answers [base]/CodeSystem/$subsumes and [base]/CodeSystem/{id}/$subsumes. See [Handler.Expand] for what is
// written and returned.
func (h *Handler) Subsumes(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
		p, l, err := o.concepts(l, inputs)
		if err != nil {
			return nil, err
		}
		outcome, err := l.Subsumes(&o.budget, p.a, p.b)
		if err != nil {
			return nil, err
		}
		out := parameters.NewWriter(nil)
		out.Text("outcome", "valueCode", outcome)
		return out.End(), nil
	})
}

// concepts reads the parameters of $lookup and $subsumes, and adds the resources sent with them to the library.
func (o *operation) concepts(base *terminology.Library, inputs []parameters.Input) (*concepts, *terminology.Library, error) {
	p, err := parseConcepts(inputs)
	if err != nil {
		return nil, nil, err
	}
	o.fill(&p.common)
	l, err := o.libraryWith(base, &p.common)
	if err == nil && p.common.ID != "" {
		err = l.Definitions().Systems.Instance(p.common.ID, &p.a, &p.b)
	}
	return p, l, err
}

// concepts are the parameters of $lookup and $subsumes.
type concepts struct {
	common common
	a, b   parameters.Coding // $lookup has only a
}

// parseConcepts reads each concept from a Coding, or from a code with the parameters system and version.
func parseConcepts(inputs []parameters.Input) (*concepts, error) {
	c := new(concepts)
	if err := c.common.read(inputs); err != nil {
		return nil, err
	}
	var system parameters.Coding // system and version, for the codes
	for i := range inputs {
		switch in := &inputs[i]; in.Name {
		case "system":
			system.System = in.Value
		case "version":
			system.Version = in.Value
		case "code", "codeA":
			c.a.Code = in.Value
		case "codeB":
			c.b.Code = in.Value
		}
	}
	for _, suffix := range []string{"", "A", "B"} {
		of := &c.a
		if suffix == "B" {
			of = &c.b
		}
		if err := c.complete(of, &system, "code"+suffix, "coding"+suffix); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// complete takes a concept from the parameter that is a Coding, or else gives its code the system.
func (c *concepts) complete(of, system *parameters.Coding, code, whole string) error {
	in := parameters.Find(c.common.Given, whole)
	if in == nil {
		of.System, of.Version = cmp.Or(of.System, system.System), cmp.Or(of.Version, system.Version)
		return nil
	}
	if c.common.Sent(code) {
		return outcome.BadRequest("invalid", "of the parameters %s and %s only one may be given", code, whole)
	}
	var err error
	*of, err = parameters.ParseCoding(in.Complex, whole)
	return err
}
