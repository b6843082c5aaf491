package main

import (
	"encoding/binary"
	"errors"
)

// errClassFile says that a file is no class file, or one of a kind that is not read here.
var errClassFile = errors.New("malformed class file")

// annotation is an annotation of a Java class file: the descriptor of its type, and its values. A value is a string, an
// annotation, or a list of values; numbers are the strings that their constants have, so they are empty.
type annotation struct {
	name   string
	values map[string]any
}

// classFile reads a Java class file (JVM specification, chapter 4). A read beyond the end gives zeros, and is an error
// in the end.
type classFile struct {
	rest      []byte
	short     bool
	constants []string
}

// fieldAnnotations returns the annotations of a class's fields.
func fieldAnnotations(text []byte) ([]annotation, error) {
	c := &classFile{rest: text}
	if c.number(4) != 0xCAFEBABE {
		return nil, errClassFile
	}
	c.take(4) // versions
	c.readConstants()
	c.take(6) // flags, name, superclass
	c.take(2 * c.number(2))
	var found []annotation
	for range c.number(2) {
		c.take(6) // flags, name, descriptor
		found = append(found, c.attributes()...)
	}
	if c.short {
		return nil, errClassFile
	}
	return found, nil
}

// take returns the next n bytes.
func (c *classFile) take(n int) []byte {
	if n > len(c.rest) {
		c.short, c.rest = true, nil
		return make([]byte, min(n, 8))
	}
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

// number reads a number of n bytes.
func (c *classFile) number(n int) int {
	var buffer [8]byte
	copy(buffer[8-n:], c.take(n))
	return int(binary.BigEndian.Uint64(buffer[:]))
}

// readConstants reads the constants, of which only strings are kept.
func (c *classFile) readConstants() {
	c.constants = make([]string, c.number(2))
	for i := 1; i < len(c.constants); i++ {
		switch tag := c.number(1); tag {
		case 1: // Utf8
			c.constants[i] = string(c.take(c.number(2)))
		case 5, 6: // Long and Double, which count twice
			c.take(8)
			i++
		case 7, 8, 16, 19, 20: // Class, String, MethodType, Module, Package
			c.take(2)
		case 15: // MethodHandle
			c.take(3)
		default:
			c.take(4)
		}
	}
}

// constant reads the index of a constant, and returns it if it is a string.
func (c *classFile) constant() string {
	if i := c.number(2); i < len(c.constants) {
		return c.constants[i]
	}
	c.short = true
	return ""
}

// attributes reads the attributes of a field, and returns its annotations.
func (c *classFile) attributes() []annotation {
	var found []annotation
	for range c.number(2) {
		name, length := c.constant(), c.number(4)
		if name != "RuntimeVisibleAnnotations" {
			c.take(length)
			continue
		}
		for range c.number(2) {
			found = append(found, c.annotation())
		}
	}
	return found
}

// annotation reads an annotation.
func (c *classFile) annotation() annotation {
	a := annotation{name: c.constant(), values: make(map[string]any)}
	for range c.number(2) {
		name := c.constant()
		a.values[name] = c.value()
	}
	return a
}

// value reads a value of an annotation.
func (c *classFile) value() any {
	switch c.number(1) {
	case '@':
		return c.annotation()
	case '[':
		values := make([]any, 0, 4)
		for range c.number(2) {
			values = append(values, c.value())
		}
		return values
	case 'e':
		c.take(2)
	}
	return c.constant()
}
