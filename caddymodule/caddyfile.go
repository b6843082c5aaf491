package caddymodule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// handlerDirective is a handler that reads its own directive.
type handlerDirective interface {
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// appUser is a handler that, as it is written, may need the fhir app.
type appUser interface {
	// checkApp says what the handler misses, where there is no app.
	checkApp() error
}

// registerHandler registers a directive at its place beside a standard one.
func registerHandler(name string, at httpcaddyfile.Positional, standard string, newHandler func() handlerDirective) {
	httpcaddyfile.RegisterDirectiveOrder(name, at, standard)
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := newHandler()
		if written, ok := handler.(interface{ setSource(position) }); ok {
			h.Next()
			written.setSource(positionOf(h.Dispenser))
			h.Reset()
		}
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if user, ok := handler.(appUser); ok && h.Option("fhir") == nil {
			h.Reset()
			h.Next() // so that the error names the line
			if err := user.checkApp(); err != nil {
				return nil, h.WrapErr(err)
			}
		}
		return handler, nil
	})
}

// position is a line of the Caddyfile, for an error that is found when more was read.
type position struct {
	file string
	line int
}

func positionOf(d *caddyfile.Dispenser) position { return position{d.File(), d.Line()} }

// wrap is [caddyfile.Dispenser.WrapErr] for the position.
func (p position) wrap(err error) error { return fmt.Errorf("%w, at %s:%d", err, p.file, p.line) }

// setter reads the arguments of one subdirective.
type setter func(d *caddyfile.Dispenser) error

// subdirectives are those of one block, by name.
type subdirectives map[string]setter

// parseDirective reads a directive without arguments, and its block.
func parseDirective(d *caddyfile.Dispenser, fields subdirectives, many ...string) error {
	d.Next() // consume directive name
	if d.NextArg() {
		return d.ArgErr()
	}
	return fields.parse(d, many...)
}

// parse reads a block. A name that is unknown, or there a second time without
// being named in many, is an error: silently ignoring it would disable whatever
// it was meant to set.
func (s subdirectives) parse(d *caddyfile.Dispenser, many ...string) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		set, known := s[name]
		switch {
		case !known:
			return d.Errf("unrecognized subdirective: %s%s", name, didYouMeanKey(name, s))
		case seen[name] && !slices.Contains(many, name):
			return d.Errf("%s is there a second time", name)
		}
		seen[name] = true
		if err := set(d); err != nil {
			return err
		}
	}
	return nil
}

// word reads one argument and checks it, if there is a check.
func word(to *string, check func(string) error) setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		args := d.RemainingArgs()
		switch {
		case len(args) > 1:
			return d.ArgErr()
		case len(args) == 0 || args[0] == "":
			return errNoValue(d, name)
		}
		*to = args[0]
		return checked(d, check, *to)
	}
}

// errNoValue is for an option that has none: Caddy puts in variables before anything is
// parsed, and then nothing tells that there was one.
func errNoValue(d *caddyfile.Dispenser, name string) error {
	return d.Errf("%s has no value; a {$VARIABLE} that is unset or empty leaves none", name)
}

// words reads one or more arguments and checks each, if there is a check.
func words(to *[]string, check func(string) error) setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if *to = d.RemainingArgs(); len(*to) == 0 {
			return errNoValue(d, name)
		}
		for _, w := range *to {
			if err := checked(d, check, w); err != nil {
				return err
			}
		}
		return nil
	}
}

// pair reads a key and its value, and checks them.
func pair(to *map[string]string, check func(key, value string) error) setter {
	return func(d *caddyfile.Dispenser) error {
		var key, value string
		if !d.Args(&key, &value) || d.NextArg() {
			return d.ArgErr()
		}
		if _, there := (*to)[key]; there {
			return d.Errf("%s is there a second time", key)
		}
		if err := check(key, value); err != nil {
			return d.WrapErr(err)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		return nil
	}
}

func checked(d *caddyfile.Dispenser, check func(string) error, w string) error {
	if check == nil {
		return nil
	}
	if err := check(w); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// oneOf checks that a word is among those that are known.
func oneOf(known ...string) func(string) error {
	return func(w string) error {
		switch {
		case slices.Contains(known, w):
			return nil
		case len(known) == 1:
			return fmt.Errorf("%q: only the word %s may stand here", w, known[0])
		}
		return fmt.Errorf("%q is none of %s%s", w, strings.Join(known, ", "), didYouMean(w, known))
	}
}

// bareword is switched on by its bare name.
func bareword(to *bool) setter {
	return func(d *caddyfile.Dispenser) error {
		if *to = true; d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// only is a bareword whose name is followed by the one word it can have.
func only(value string, to *bool) setter {
	return func(d *caddyfile.Dispenser) error {
		var w string
		*to = true
		return word(&w, oneOf(value))(d)
	}
}

// duration reads a positive length of time, such as 90s, 5m or 1d.
func duration(to *caddy.Duration) setter {
	return func(d *caddyfile.Dispenser) error {
		var w string
		return word(&w, func(w string) error {
			parsed, err := caddy.ParseDuration(w)
			if *to = caddy.Duration(parsed); err != nil || parsed <= 0 {
				return fmt.Errorf("%q is not a duration such as 90s, 5m or 1d", w)
			}
			return nil
		})(d)
	}
}

// lifetime reads a duration within the bounds of one in [authorize.Config].
func lifetime(name string, to *caddy.Duration) setter {
	return func(d *caddyfile.Dispenser) error {
		if err := duration(to)(d); err != nil {
			return err
		}
		if err := authorize.CheckLifetime(name, time.Duration(*to)); err != nil {
			return d.WrapErr(err)
		}
		return nil
	}
}

// lifetimeOrOff is lifetime, or -1 for the word off.
func lifetimeOrOff(name string, to *caddy.Duration) setter {
	return func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() == 1 && nextIs(d, "off") {
			d.NextArg()
			*to = -1
			return nil
		}
		return lifetime(name, to)(d)
	}
}

// number reads a positive whole number.
func number(to *int) setter {
	return func(d *caddyfile.Dispenser) error {
		var w string
		return word(&w, func(w string) (err error) {
			if *to, err = strconv.Atoi(w); err != nil || *to <= 0 {
				return fmt.Errorf("%q is not a whole number above 0", w)
			}
			return nil
		})(d)
	}
}

// size reads a number of bytes, such as 64KiB or 16MB.
func size(to *int64) setter {
	return func(d *caddyfile.Dispenser) error {
		var w string
		return word(&w, func(w string) error {
			parsed, err := humanize.ParseBytes(w)
			if *to = int64(parsed); err != nil || *to <= 0 {
				return fmt.Errorf("%q is not a size such as 64KiB or 16MB", w)
			}
			return nil
		})(d)
	}
}
