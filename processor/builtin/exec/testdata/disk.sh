#!/bin/sh
# Tells how full the disks are, as a program for Fanjet: protocol 1. It needs no JSON library, since
# "type" and "id" come first in every line.
echo '{"type":"hello","protocol":1,"processors":[{"name":"disk"}]}'
while IFS= read -r line; do
	case $line in
	'{"type":"task",'*) ;;
	*) continue ;;
	esac
	id=${line#*'"id":'}
	id=${id%%,*}
	if used=$(df -P / | awk 'NR == 2 { sub("%", "", $5); print $5 }'); then
		echo "looked at /, $used % used" >&2
		echo "{\"type\":\"result\",\"id\":$id,\"value\":{\"used_percent\":$used}}"
	else
		echo "{\"type\":\"error\",\"id\":$id,\"message\":\"df failed\"}"
	fi
done
