package adopt

import (
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// runtimeMounts are the paths of the host that the options of a container runtime give to a container:
// -v FROM:TO[:OPTIONS] and --mount type=bind,source=FROM,target=TO of docker and podman, and of ctr, where it has
// options=rbind:ro; of rkt
// --volume NAME,kind=host,source=FROM and --mount volume=NAME,target=TO.
func runtimeMounts(words []string) []spec.Mount {
	var mounts []spec.Mount
	sources := map[string]string{} // of rkt, by the name of the volume
	readOnly := map[string]bool{}
	for i, word := range words {
		name, value, given := strings.Cut(word, "=")
		if !slices.Contains([]string{"-v", "--volume", "--mount"}, name) {
			continue
		}
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		fields := map[string]string{}
		for field := range strings.SplitSeq(value, ",") {
			key, text, _ := strings.Cut(field, "=")
			fields[key] = text
		}
		from, to := fieldOf(fields, "source", "src"), fieldOf(fields, "target", "destination", "dst")
		volume, kind := strings.Split(value, ",")[0], fields["kind"]
		_, bindReadOnly := fields["readonly"]
		bindReadOnly = bindReadOnly || slices.Contains(strings.Split(fields["options"], ":"), "ro")
		switch {
		case kind == "host":
			sources[volume] = from
			readOnly[volume] = fields["readOnly"] == "true"
			continue
		case name == "--mount" && fields["volume"] != "":
			from, bindReadOnly = sources[fields["volume"]], readOnly[fields["volume"]]
		case name != "--mount":
			var options string
			from, to, _ = strings.Cut(value, ":")
			to, options, _ = strings.Cut(to, ":")
			bindReadOnly = slices.Contains(strings.Split(options, ","), "ro")
		}
		if path.IsAbs(from) && path.IsAbs(to) {
			mounts = append(mounts, bind(len(mounts), from, to, bindReadOnly))
		}
	}
	return mounts
}

func fieldOf(fields map[string]string, names ...string) string {
	for _, name := range names {
		if fields[name] != "" {
			return fields[name]
		}
	}
	return ""
}
