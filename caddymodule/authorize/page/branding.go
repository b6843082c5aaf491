package page

import (
	"errors"
	"fmt"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds a site's name, so that it fits a small telephone.
const maxName = 80

// Branding makes the pages look like a site's own.
type Branding struct {
	Name  string // of the site, on every page. Default: the issuer's host.
	Color string // of buttons and links, such as "#0b5c8a". Default: a blue.
	Logo  *Logo  // above the name. Default: none.
}

func (b *Branding) check() error {
	if b.Name != "" {
		if err := CheckName(b.Name); err != nil {
			return err
		}
	}
	if b.Color != "" {
		return CheckColor(b.Color)
	}
	return nil
}

// CheckName returns an error if a text cannot be a site's name.
func CheckName(name string) error {
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the name must be text without control characters")
	case strings.TrimSpace(name) == "":
		return errors.New("the name is empty")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("the name is longer than %d characters", maxName)
	}
	return nil
}

// CheckColor returns an error if a text is no colour. All colours can be used: where one has
// too little contrast, pages use a lighter or darker shade of it.
func CheckColor(text string) error {
	_, err := parseColor(text)
	return err
}

// style is the style sheet with the site's colour in it.
func (b *Branding) style() template.CSS {
	style := readFile("style.css")
	if b.Color != "" {
		brand, _ := parseColor(b.Color) // checked
		style += fmt.Sprintf(":root { %s }\n@media (prefers-color-scheme: dark) { :root { %s } }\n", brand.palette(light), brand.palette(dark))
	}
	return template.CSS(style)
}
