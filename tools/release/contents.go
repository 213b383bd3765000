package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// contents lists the modules in a program, as the program itself names them, in the format of CycloneDX.
func (r *release) contents(p program) error {
	info, err := buildinfo.ReadFile(p.file)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(binary)
	hash := fmt.Sprintf("%x", sum)
	bom := cyclonedx.NewBOM()
	// A number that is the program's: the same program has the same.
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, of a content of one's own
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	main := cyclonedx.Component{BOMRef: "fusionctl", Type: cyclonedx.ComponentTypeApplication, Name: "fusionctl",
		Version: r.version, PackageURL: "pkg:golang/" + info.Main.Path + "@" + r.version,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hash}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format("2006-01-02T15:04:05Z"), Component: &main}
	components := []cyclonedx.Component{component(&debug.Module{Path: "std", Version: info.GoVersion[2:]})}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(m))
	}
	bom.Components = &components
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_5); err != nil {
		return err
	}
	return r.write("fusionctl_"+r.number()+"_"+p.os+"_"+p.arch+".cdx.json", out.Bytes())
}

func component(m *debug.Module) cyclonedx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
		PackageURL: url}
	if m.Sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
